"""The metrics are what Prometheus reads, and the documentation lists all of them."""

from __future__ import annotations

import re
from importlib.metadata import version

from prometheus_client.parser import text_string_to_metric_families

from cutline.barrier_runtime.page.settings import Page
from tests.page.asking import ask
from tests.page.conftest import ShowPage
from tests.page.reports import SPITEFUL, pipeline, report, snapshot_report, totals_mode
from tests.source_files import ROOT


def _samples(address: str) -> dict[tuple[str, ...], float]:
    """{(name, values of the labels but the run's...): value}"""
    answer = ask(address, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(answer.text))
    found = [(sample, dict(sample.labels)) for family in families for sample in family.samples]
    assert all(labels.pop("run") == "orders" for _, labels in found)
    return {(sample.name, *labels.values()): sample.value for sample, labels in found}


def test_all_metrics_of_a_run(show: ShowPage) -> None:
    """Counters go on over incarnations, the newest snapshot is split by phase, and any name comes out as it went in."""
    page = show(Page(port=0))
    page.see(report(pipeline(), 3, snapshotReports=[snapshot_report(1), snapshot_report(2, "aborted")]))
    page.see(
        report(
            pipeline(),
            1,
            incarnation=2,
            restarts=[{"timestamp": 1.0, "reason": "a worker died"}],
            progress={"metrics": {SPITEFUL: 7}},
            invariants={"holds": _verdict(True), "not": _verdict(False), "later": _verdict(None)},
        )
    )
    found = _samples(page.address)
    assert found["cutline_edge_messages_total", "clicks", "sessions"] == 4000
    assert found["cutline_messages_processed_total", "sessions"] == 4 * (1000 + 2000 + 4000)
    assert found["cutline_snapshots_published_total",] == 1
    assert found["cutline_snapshots_aborted_total",] == 1
    assert found["cutline_restarts_total",] == 1
    assert found["cutline_snapshot_duration_seconds",] == 0.042
    phases = {key[1]: value for key, value in found.items() if key[0] == "cutline_snapshot_phase_seconds"}
    assert (
        list(phases) == ["trigger", "align", "capture", "upload", "publish"] and round(sum(phases.values()), 6) == 0.042
    )
    assert found["cutline_user_metric_total", SPITEFUL] == 7
    holds = {key[1]: value for key, value in found.items() if key[0] == "cutline_invariant_holds"}
    assert holds == {"holds": 1, "not": 0}
    assert found["cutline_run_active",] == 1
    page.end(report(pipeline(), 2, incarnation=2, outcome="stopped"), None, {})
    assert _samples(page.address)["cutline_run_active",] == 0


def test_stores_have_metrics(show: ShowPage) -> None:
    """Operations go on over incarnations; a store with an error is not available."""
    page = show(Page(port=0))
    page.see(report(pipeline(), 1, mode=totals_mode(operations=5)))
    page.see(report(pipeline(), 1, incarnation=2, mode=totals_mode(operations=2, error="away")))
    found = _samples(page.address)
    assert found["cutline_items_behind",] == 1234
    assert found["cutline_store_operations_total", "ledger"] == 7
    keys = [found["cutline_store_keys", "ledger", state] for state in ("open", "cut")]
    sizes = [found["cutline_store_bytes", "ledger", state] for state in ("open", "cut")]
    assert (keys, sizes) == ([1000, 234], [64_000, 16_000])
    assert found["cutline_store_cells_left", "ledger"] == 56 and found["cutline_store_available", "ledger"] == 0
    page.see(report(pipeline(), 2, incarnation=2, mode=totals_mode(operations=2) | {"itemsBehind": None}))
    assert ("cutline_items_behind",) not in _samples(page.address)
    assert _samples(page.address)["cutline_store_available", "ledger"] == 1


def test_records_have_metrics(show: ShowPage) -> None:
    """In mode channelLogs, where a run has few snapshots to watch."""
    page = show(Page(port=0))
    node = {"records": 7, "recordAge": 1.5, "recordMs": 3.0, "logBytes": 9, "waitsFor": [], "failed": 2}
    page.see(report(pipeline(), 1, mode={"name": "channelLogs", "recovery": None, "nodes": {"ledger": node}}))
    found = _samples(page.address)
    assert (found["cutline_record_age_seconds", "ledger"], found["cutline_records_failed", "ledger"]) == (1.5, 2)


def test_labels_have_names(show: ShowPage) -> None:
    """Rules and dashboards select by them."""
    page = show(Page(port=0))
    page.see(report(pipeline(), 1))
    text = ask(page.address, "/metrics").text
    assert 'cutline_edge_messages_total{run="orders",source="clicks",target="sessions"} ' in text
    on_edges = re.findall(r"^cutline_edge_\w+?\{(.*)\} ", text, re.MULTILINE)
    assert {tuple(re.findall(r'(\w+)="', labels)) for labels in on_edges} == {("run", "source", "target")}
    assert len(on_edges) == 4 * len(pipeline().edges)
    assert f'cutline_run_info{{run="orders",version="{version("cutline")}"}} 1.0' in text


def test_open_metrics_for_who_asks(show: ShowPage) -> None:
    """The same in the newer format."""
    address = show(Page(port=0)).address
    answer = ask(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text") and answer.text.endswith("# EOF\n")


def test_the_documentation_lists_them_all(show: ShowPage) -> None:
    """Names and labels, and nothing that there is not."""
    page = show(Page(port=0))
    help_lines = re.findall(r"^# HELP (\w+) ", ask(page.address, "/metrics").text, re.MULTILINE)
    listed = re.findall(r"^\| `(cutline_\w+)`", (ROOT / "docs" / "PAGE.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(help_lines)


def _verdict(holds: bool | None) -> dict[str, object]:
    return {
        "holds": holds,
        "snapshot": 1,
        "violations": [],
        "violationCount": 0,
        "unreadable": [],
        "unreadableCount": 0,
    }
