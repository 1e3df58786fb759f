"""What the page says of reports: rates, counters over incarnations, snapshots over coordinators, orders, streams."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from benchmarks.live import wait_for
from cutline.barrier_runtime.page.commands import COMMANDS_MAX, Commands, Kind, parse_arguments
from cutline.barrier_runtime.page.counting import CumulativeCounters, Rates
from cutline.barrier_runtime.page.run_view import RunView
from cutline.barrier_runtime.page.server import close_page, open_page
from cutline.barrier_runtime.page.settings import Page
from cutline.barrier_runtime.page.snapshot_table import REPORTS_MAX, SnapshotTable
from cutline.snapshot.errors import SnapshotAborted
from tests.page.asking import ask, events
from tests.page.conftest import ShowPage
from tests.page.reports import pipeline, report, snapshot_report

NOTHING = dict.fromkeys(Kind, lambda: None)


def test_counters_go_on_over_incarnations() -> None:
    """What was rolled back counts too; a coordinator that hears of its workers one by one takes nothing back."""
    counters: CumulativeCounters[str] = CumulativeCounters()
    for incarnation, counts in ((1, {"a": 5}), (1, {"a": 9, "b": 1}), (1, {"a": 4}), (1, {"a": 9})):
        before = counters.totals()
        counters.see(incarnation, counts)
        assert all(counters.totals()[key] >= value for key, value in before.items())
    counters.see(2, {"a": 2})
    counters.see(4, {"b": 3})
    assert counters.totals() == {"a": 11, "b": 4}


def test_rates_are_of_the_last_seconds_of_one_incarnation() -> None:
    """Over about two seconds; a new incarnation begins at nothing, and a counter that is new has no rate yet."""
    rates: Rates[str] = Rates()
    assert rates.per_second("a") == 0
    for step in range(40):
        rates.see(step * 0.25, 1, {"a": 100.0 * step * step, **({"b": 1.0} if step > 38 else {})})
    assert rates.per_second("a") == pytest.approx(100 * (39**2 - 31**2) / 2)
    assert rates.per_second("b") == 0
    rates.see(10.0, 2, {"a": 7.0})
    assert rates.per_second("a") == 0
    rates.see(10.5, 2, {"a": 8.0})
    assert rates.per_second("a") == pytest.approx(2)


def test_snapshots_of_several_coordinators() -> None:
    """Each is counted once, in whatever order they end; one that lost its coordinator is not left pending."""
    table = SnapshotTable()
    table.see(1, [snapshot_report(1), snapshot_report(2, "pending"), snapshot_report(3, "pending")], [1])
    table.see(2, [snapshot_report(1), snapshot_report(2, "aborted", reason="late"), snapshot_report(3)], [1, 3])
    assert (table.published, table.aborted) == (2, 1)
    assert [each["id"] for each in table.since(1)] == [2, 3]
    table.see(
        3, [*(snapshot_report(n) for n in (1, 3)), snapshot_report(4, "pending"), snapshot_report(5, "pending")], []
    )
    table.see(4, [], [1, 3, 5])  # a new life, whose storage says that 5 was published
    ends = {each["id"]: each["state"] for each in table.since(3)}
    assert ends == {4: "aborted", 5: "published"} and (table.published, table.aborted) == (3, 2)
    table.see(5, [snapshot_report(n) for n in range(6, 6 + REPORTS_MAX)], [])
    assert [each["id"] for each in table.since(0)] == list(range(6, 6 + REPORTS_MAX))
    assert table.newest is not None and table.newest["id"] == 5 + REPORTS_MAX
    table.see(6, [snapshot_report(1), snapshot_report(5 + REPORTS_MAX)], [])
    assert table.since(5) == [] and table.published == 3 + REPORTS_MAX


def test_a_document_says_what_has_changed() -> None:
    """The first is whole; one that follows has the new points and the changed snapshots, and all numbers."""
    view = RunView("orders", pipeline(), NOTHING)
    assert view.document()["phase"] == "starting" and view.document()["nodes"] == {}
    assert (view.document()["inPerSecond"], view.document()["outPerSecond"]) == (0.0, 0.0)
    restarts = [{"timestamp": 1.0, "reason": "a worker died"}]
    view.see(report(pipeline(), 1, snapshotReports=[snapshot_report(1)]))
    first = view.document()
    view.see(report(pipeline(), 2, snapshotReports=[snapshot_report(1), snapshot_report(2)], restarts=restarts))
    then = view.document(first["version"])
    assert (first["isWhole"], then["isWhole"]) == (True, False)
    assert [each["id"] for each in then["snapshotReports"]] == [2]
    assert [each["id"] for each in view.document()["snapshotReports"]] == [1, 2]
    assert (len(first["points"]), len(then["points"])) == (1, 0)
    assert then["graph"]["into"] == ["clicks", "payments"] and then["graph"]["outOf"] == ["ledger"]
    assert then["inPerSecond"] > 0 and then["edges"][3]["messagesPerSecond"] > then["edges"][0]["messagesPerSecond"]
    view.see(report(pipeline(), 1, incarnation=2, restarts=restarts, restartCount=207))
    assert (view.document()["restartCount"], view.document()["incarnation"]) == (207, 2)
    assert view.document()["restarts"] == restarts


def test_snapshots_that_were_pinned_before_this_start_are_shown() -> None:
    """Those that the history lacks, once the history is known, and until they are unpinned."""
    view = RunView("orders", pipeline(), NOTHING, pinned=(1, 2, 3))
    assert view.document()["pinnedBefore"] == []
    view.see(report(pipeline(), 1, incarnation=0))
    assert view.document()["pinnedBefore"] == []
    view.see(report(pipeline(), 1, snapshots=[2, 7]))
    assert view.document()["pinnedBefore"] == [1, 3]
    view.note_unpinned(3)
    assert view.document()["pinnedBefore"] == [1]


def test_a_number_that_json_lacks_is_left_out() -> None:
    """A node may count up to infinity; the page goes on."""
    view = RunView("orders", pipeline(), NOTHING)
    progress = {"metrics": {"good": 1, "bad": float("inf"), "worse": float("nan")}}
    view.see(report(pipeline(), 1, progress=progress))
    assert json.loads(json.dumps(view.document(), allow_nan=False))["metrics"] == {"good": 1}


def test_orders_are_carried_out_once_and_tell_their_end() -> None:
    """A second of a kind waits with the first; what it raises is told."""
    may_go_on = threading.Event()

    def take() -> None:
        assert may_go_on.wait(30)
        raise SnapshotAborted("the disk is full")

    changes: list[None] = []
    orders = Commands({Kind.SNAPSHOT: take, Kind.STOP: lambda: None}, lambda: changes.append(None))
    assert (orders.submit(Kind.SNAPSHOT, {}), orders.submit(Kind.SNAPSHOT, {})) == (1, None)
    assert orders.submit(Kind.STOP, {}) == 2
    may_go_on.set()
    ended = wait_for("both", lambda: [o for o in orders.as_document() if o["state"] != "waiting"][1:])
    assert [o["state"] for o in [*orders.as_document()]] == ["failed", "done"] and ended
    assert orders.as_document()[0]["text"] == "the disk is full" and len(changes) == 4


def test_commands_of_other_snapshots_wait_side_by_side() -> None:
    """One of each snapshot at a time, with its arguments; at most ten wait, because each takes a thread."""
    may_go_on, seen = threading.Event(), []

    def pin(snapshotId: int) -> None:
        seen.append(snapshotId)
        assert may_go_on.wait(30)

    commands = Commands({Kind.PIN: pin}, lambda: None)
    numbers = [commands.submit(Kind.PIN, {"snapshotId": each}) for each in (7, 7, *range(8, 20))]
    assert numbers == [1, None, *range(2, COMMANDS_MAX + 1), *[None] * 3]
    assert commands.as_document()[0] == {
        **{"number": 1, "kind": "pin", "state": "waiting", "text": "pinning snapshot 7", "snapshot": 7}
    }
    may_go_on.set()
    wait_for("all", lambda: all(each["state"] == "done" for each in commands.as_document()))
    assert commands.as_document()[-1]["text"] == "snapshot 16 is pinned" and sorted(seen) == [*range(7, 17)]


def test_a_command_names_each_node_that_it_rescales() -> None:
    """A text for people, before and after."""
    may_go_on = threading.Event()

    def rescale(parallelism: dict[str, int]) -> None:
        assert may_go_on.wait(30)

    commands = Commands({Kind.RESCALE: rescale}, lambda: None)
    commands.submit(Kind.RESCALE, {"parallelism": {"count": 4, "total": 1}})
    assert commands.as_document()[0]["text"] == "rescaling to count=4, total=1"
    may_go_on.set()
    wait_for("the rescaling", lambda: commands.as_document()[0]["state"] == "done")
    assert commands.as_document()[0]["text"] == "rescaled to count=4, total=1"


def test_a_command_that_waits_is_never_forgotten() -> None:
    """However many are done behind it, because its client waits for its end; the oldest that is done makes room."""
    may_go_on = threading.Event()

    def take() -> None:
        assert may_go_on.wait(30)

    commands = Commands({Kind.SNAPSHOT: take, Kind.PIN: lambda snapshotId: None}, lambda: None)
    assert commands.submit(Kind.SNAPSHOT, {}) == 1
    for each in range(2, COMMANDS_MAX + 4):
        assert commands.submit(Kind.PIN, {"snapshotId": each}) == each
        wait_for("the pin", lambda: commands.as_document()[-1]["state"] == "done")
    assert [each["number"] for each in commands.as_document()] == [1, *range(5, COMMANDS_MAX + 4)]
    assert commands.submit(Kind.SNAPSHOT, {}) is None
    may_go_on.set()
    wait_for("the snapshot", lambda: commands.as_document()[0]["state"] == "done")


@pytest.mark.parametrize(
    ("kind", "texts", "found"),
    [
        (Kind.SNAPSHOT, {}, {}),
        (Kind.SNAPSHOT, {"pinned": "true", "timeout": "1.5"}, {"pinned": True, "timeout": 1.5}),
        (Kind.SNAPSHOT, {"pinned": "1"}, "snapshot: pinned: '1' is neither true nor false"),
        *((Kind.STOP, {"timeout": each}, "no number of seconds above 0") for each in ("0", "nan", "inf", "-1")),
        (Kind.STOP, {"timeout": "soon"}, "stop: timeout: could not convert"),
        (Kind.RESCALE, {"parallelism": "a=4,b.c=1"}, {"parallelism": {"a": 4, "b.c": 1}}),
        (Kind.RESCALE, {"parallelism": "a=4,a=1"}, "rescale: parallelism: 'a=1' is not NODE=NUMBER, or names a node"),
        (Kind.RESCALE, {"timeout": "1"}, "rescale needs parallelism"),
        (Kind.STOP_NOW, {"timeout": "1"}, "stop-now has no argument 'timeout'; it has none"),
        (Kind.PIN, {"snapshotId": "42"}, {"snapshotId": 42}),
        (Kind.UNPIN, {}, "unpin needs snapshotId"),
        (Kind.DELETE, {"snapshotId": "x"}, "delete: snapshotId: invalid literal"),
    ],
)
def test_arguments_of_commands(kind: Kind, texts: dict[str, str], found: dict[str, Any] | str) -> None:
    """Each kind has its own; all others are refused by name."""
    if isinstance(found, str):
        with pytest.raises(ValueError, match=found):
            parse_arguments(kind, texts)
    else:
        assert parse_arguments(kind, texts) == found


def test_a_stream_ends_with_the_run(show: ShowPage) -> None:
    """Whole at first, at last the outcome though the server ends at once, and that nothing follows."""
    page = show(Page(port=0))
    page.see(report(pipeline(), 1))
    stream = events(page.address, "/api/runs/orders/events")
    first = next(stream)
    assert first is not None and first["isWhole"] and first["isActive"]
    page.see(report(pipeline(), 2))
    page.end(report(pipeline(), 3, outcome="finished", reason="all has ended"), None, {})
    page.close()
    *_, last, end = stream
    assert last is not None and end is None
    assert (last["isWhole"], last["isActive"], last["outcome"]) == (False, False, "finished")


def test_a_supervisor_that_failed_is_told(show: ShowPage) -> None:
    """There is no status then, perhaps not one report."""
    page = show(Page(port=0))
    page.end({}, ValueError("no stage"), {})
    found = ask(page.address, "/api/runs/orders").json
    assert (found["isActive"], found["outcome"]) == (False, "failed") and "no stage" in found["reason"]


def test_a_page_that_cannot_be_drawn_harms_no_run(show: ShowPage, caplog: pytest.LogCaptureFixture) -> None:
    """The monitor goes on, and the log says what is wrong."""
    page = show(Page(port=0))
    page.see({"incarnation": 1})
    page.end({"incarnation": 1}, None, {})
    assert [record.getMessage() for record in caplog.records] == ["the page cannot show run orders"] * 2


def test_one_server_for_all_runs_until_the_last_has_ended(show: ShowPage) -> None:
    """Runs of one name are told apart while both are on; who comes after the last one gets the same port."""
    settings = Page(port=46_400)
    first = show(settings)
    server = open_page(settings)
    second = server.show("orders", pipeline(), NOTHING)
    assert [run["name"] for run in ask(first.address, "/api/runs").json["runs"]] == ["orders", "orders~2"]
    assert second.address.endswith("/runs/orders~2") and ask(second.address, "/runs/orders~2").status == 200
    second.end(report(pipeline(), 1, outcome="stopped"), None, {})
    close_page(server)
    late, end = events(first.address, "/api/runs/orders~2/events")
    assert late is not None and late["outcome"] == "stopped" and end is None
    first.close()
    with pytest.raises(ConnectionRefusedError):
        ask(first.address, "/api/runs")
    assert show(settings).address == first.address
