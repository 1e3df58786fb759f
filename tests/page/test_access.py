"""Who gets in and who may order: token, Host, origin, addresses."""

from __future__ import annotations

import socket

import pytest

from cutline import Page
from cutline.snapshot.errors import RunFailed
from tests.page.asking import ask
from tests.page.conftest import ShowPage

LOCAL = Page(port=0)
GUARDED = Page(port=0, token="a token")
ORDER = "/api/runs/orders/snapshot"


def test_loopback_is_open_to_who_calls_it_so(show: ShowPage) -> None:
    """Without a token; under a foreign name that points here (DNS rebinding) nobody gets in."""
    address = show(LOCAL).address
    for name in ("127.0.0.1:1", "localhost", "localhost:9999", "[::1]:80"):
        assert ask(address, "/api/runs", Host=name).status == 200, name
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[", "10.0.0.1"):
        assert ask(address, "/api/runs", Host=name).status == 400, name


def test_a_token_is_asked_for_at_every_door(show: ShowPage) -> None:
    """Nothing is told without it; a wrong one is as none."""
    address = show(GUARDED).address
    for path in ("/", "/runs/orders", "/static/page.css", "/api/runs", "/api/runs/orders/events", "/metrics", "/none"):
        answer = ask(address, path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        assert ask(address, f"{path}?token=another").status == 401, path
    assert ask(address, "/metrics", Authorization="Bearer another").status == 401
    assert ask(address, "/metrics", Authorization="Basic a token").status == 401
    assert ask(address, ORDER, method="POST", X_Cutline_Request="1").status == 401
    assert ask(address, f"{ORDER}?token=a+token", method="POST", X_Cutline_Request="1").status == 401
    assert ask(address, "/metrics", Authorization="Bearer a token").status == 200


def test_the_token_becomes_a_cookie(show: ShowPage) -> None:
    """It leaves the address bar at once; the cookie is for HTTP only, for this site, and of this port."""
    address = show(GUARDED).address
    answer = ask(address, "/runs/orders?token=a+token&tab=2")
    assert (answer.status, answer.headers["location"]) == (303, "/runs/orders?tab=2")
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert {each.lower() for each in attributes} >= {"httponly", "samesite=lax", "path=/"}
    assert cookie.startswith(f"cutline-{address.rpartition(':')[2].partition('/')[0]}=")
    assert ask(address, "/runs/orders", Cookie=cookie).status == 200
    assert ask(address, "//evil.example/?token=a+token").headers["location"] == "/evil.example/"


def test_only_the_tokens_own_cookie_lets_in(show: ShowPage) -> None:
    """A cookie of another value, or of the token under another name, is as none."""
    address = show(GUARDED).address
    cookie = ask(address, "/?token=a+token").headers["set-cookie"].split("; ")[0]
    name, _, value = cookie.partition("=")
    wrong = ("", "another", "a token", "atoken", value[:-1], value + "x", value[:-1] + 'x"', value.upper(), '""')
    for shown in (*(f"{name}={each}" for each in wrong if each not in (value, "a token")), f"x{name}={value}", name):
        assert ask(address, "/api/runs", Cookie=shown).status == 401, shown
        post = ask(address, ORDER, method="POST", Cookie=shown, X_Cutline_Request="1")
        assert post.status == 401, shown
    assert ask(address, "/api/runs", Cookie=cookie).status == 200


def test_orders_come_from_the_page_or_from_no_page(show: ShowPage) -> None:
    """A foreign page cannot order: its origin shows, and it cannot send the header."""
    address = show(LOCAL).address
    host = address.split("/")[2]
    good = {"X_Cutline_Request": "1", "Host": host}
    assert ask(address, ORDER, method="POST", **good).status == 202
    assert "needs the header x-cutline-request," in ask(address, ORDER, method="POST", Host=host).text
    for headers in (
        {"Host": host},
        {**good, "Origin": "http://evil.example"},
        {**good, "Origin": "null"},
        {**good, "Origin": f"http://{host}0"},
        {**good, "Sec_Fetch_Site": "cross-site"},
        {**good, "Sec_Fetch_Site": "same-site"},
    ):
        assert ask(address, ORDER, method="POST", **headers).status == 403, headers
    own = {**good, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
    assert ask(address, ORDER, method="POST", **own).status in (202, 409)
    assert ask(address, ORDER).status == 405
    assert "access-control-allow-origin" not in ask(address, ORDER, method="OPTIONS", **good).headers


def test_what_is_not_there(show: ShowPage) -> None:
    """Unknown runs, files and orders; a path that climbs finds no file."""
    address = show(LOCAL).address
    for path in ("/runs/none", "/api/runs/none", "/api/runs/none/events", "/static/none.js", "/static/../app.py"):
        assert ask(address, path).status == 404, path
    assert ask(address, "/static/%2e%2e/app.py").status == 404
    unknown = ask(address, "/api/runs/orders/none", method="POST", X_Cutline_Request="1")
    assert unknown.status == 404 and "there is no command 'none'; there are snapshot, stop, stop-now" in unknown.text
    wrong = ask(address, "/api/runs/orders/pin?snapshot=1", method="POST", X_Cutline_Request="1")
    assert (wrong.status, wrong.text) == (400, "pin has no argument 'snapshot'; it has snapshotId\n")


def test_each_file_has_its_type(show: ShowPage) -> None:
    """A browser must not guess the type, so it takes no script, style or image of another type."""
    address = show(LOCAL).address
    for name, media_type in (
        ("page.css", "text/css; charset=utf-8"),
        ("run.html", "text/html; charset=utf-8"),
        ("run.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/uPlot.LICENSE", "text/plain; charset=utf-8"),
    ):
        assert ask(address, f"/static/{name}").headers["content-type"] == media_type, name


def test_an_unknown_address_leads_back(show: ShowPage) -> None:
    """A person gets a page with a link to the list, in which no name is HTML; a program gets plain text."""
    address = show(LOCAL).address
    for path in ("/runs/none", "/runs/a%2Fb", "/runs/", "/none", "/runs/%3Cb%3E%22"):
        answer = ask(address, path)
        assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert '<a href="/">' in answer.text and "<b>" not in answer.text and "REASON" not in answer.text
    assert "there is no run &#x27;none&#x27; here" in ask(address, "/runs/none").text
    for path in ("/api/runs/none", "/api/none", "/static/none.js"):
        assert ask(address, path).headers["content-type"].startswith("text/plain"), path


def test_all_answers_keep_to_themselves(show: ShowPage) -> None:
    """Nothing is loaded from elsewhere, and nobody frames the page, refusals included."""
    address = show(GUARDED).address
    for answer in (ask(address, "/"), ask(address, "/", Authorization="Bearer a token")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_beyond_loopback_a_token_is_made(show: ShowPage) -> None:
    """It is part of the address; a chosen one is not, for who may know it does."""
    made = show(Page(port=0, host="0.0.0.0")).address
    name, token = made.split("?token=")
    assert len(token) >= 20
    local = f"http://127.0.0.1:{name.split(':')[2].split('/')[0]}"
    assert ask(local, "/api/runs").status == 401
    assert ask(local, "/api/runs", Authorization=f"Bearer {token}", Host="any.name").status == 200
    assert "token" not in show(GUARDED).address


def test_a_taken_port_is_passed_over(show: ShowPage) -> None:
    """As Spark's page does; an address that is not this machine's is an error that says so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = show(Page(port=port)).address
        assert port < int(address.split(":")[2].split("/")[0]) < port + 32
    with pytest.raises(RunFailed, match=r"cannot listen on 192\.0\.2\.1"):
        show(Page(port=0, host="192.0.2.1"))


def test_settings_are_checked() -> None:
    """What cannot work is refused where it is written."""
    for wrong in ({"port": 65_536}, {"port": -1}, {"host": ""}, {"token": ""}, {"token": "ä"}, {"token": " "}):
        with pytest.raises(ValueError, match="is"):
            Page(**wrong)
