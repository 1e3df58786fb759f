"""What `submit` refuses to restore before anything starts."""

from __future__ import annotations

from contextlib import nullcontext
from re import escape
from typing import Any

import pytest

from cutline import Context, Graph, MemoryBackend, Sink, Source
from cutline.barrier_runtime.driver.restore_check import Origin, check_restore, origin_of, plan_of
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.plan.compiled_graph import CompiledGraph, build
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import record_of_topology
from tests.snapshot import sample
from tests.snapshot.led import BUSY, record

FIRST, LEFT, NEWEST = 1_000_000, 1_000_001, 3_000_000


class _Numbers(Source):
    def poll(self, context: Context) -> float:
        return 1.0


class _Ledger(Sink):
    """Repeats nothing, unless it is restored from a state before its commits."""

    guarantee = "exactly_once"

    def onMessage(self, message: Any, context: Context) -> None:
        pass

    def prepareCommit(self, snapshotId: int) -> None:
        pass

    def commit(self, snapshotId: int, prepared: Any) -> None:
        pass

    def discardUncommitted(self, context: Context) -> None:
        pass


def _store(compiled: CompiledGraph, *bases: int | None) -> RunStore:
    """A run whose second snapshot is pinned, and whose claims continued from `bases`."""
    store = RunStore(MemoryBackend(), sample.RUN)
    for claim, base in enumerate(bases, 1):
        store.take_claim(Claim(claim, str(claim), str(claim)))
        store.write_base(Base(claim, base))
    for snapshot_id, pinned in ((FIRST, False), (LEFT, True), (NEWEST, False)):
        subtasks = compiled.topology.subtasks
        records = tuple(record(compiled.topology, each, snapshot_id // 10**6, snapshot_id, BUSY) for each in subtasks)
        assert store.write_manifest(
            Manifest(
                run=sample.RUN,
                snapshot_id=snapshot_id,
                incarnation=snapshot_id // 10**6,
                claim=snapshot_id // 10**6,
                timestamp=0.0,
                duration=0.0,
                final=False,
                pinned=pinned,
                topology=record_of_topology(compiled.topology),
                records=records,
            )
        )
    return store


@pytest.mark.parametrize(
    ("bases", "restore_from", "refusal"),
    [
        ((None,), "latest", ""),
        ((None,), LEFT, ""),
        ((None,), FIRST, f"up to snapshot {LEFT}; going back to {FIRST}"),
        ((None,), None, f"up to snapshot {LEFT}; going back to the beginning"),
        ((None, FIRST), LEFT, f"up to snapshot {FIRST}; going back to {LEFT}"),
        ((None, None), LEFT, f"after that snapshot; going back to {LEFT}"),
        ((None, None), "latest", ""),
        ((None, None), None, ""),
        ((None, None), FIRST, rf"has no snapshot {FIRST}; it has \[{LEFT}\]"),
        ((None, None, None), LEFT, f"up to snapshot {NEWEST}; going back to {LEFT}"),
        ((None, None, None), LEFT + 1, rf"it has \[{LEFT}, {NEWEST}\]"),
    ],
)
def test_what_would_repeat_output_is_refused(bases: tuple[int | None, ...], restore_from: Any, refusal: str) -> None:
    """Going back is refused, on the chain and to a pinned snapshot off the chain, whatever is the newest now."""
    compiled = build(Graph(sample.RUN).add("a", _Numbers()).add("b", _Ledger()).connect("a", "b"), "unaligned")
    store = _store(compiled, *bases)
    origin = origin_of(restore_from, sample.RUN)
    if not refusal:
        check_restore(sample.RUN, compiled, origin, (), lambda run: store)
        return
    with pytest.raises(RestoreRefused, match=refusal):
        check_restore(sample.RUN, compiled, origin, (), lambda run: store)
    if "going back" in refusal:
        check_restore(sample.RUN, compiled, origin, ("repeatedOutput",), lambda run: store)


def test_a_snapshot_is_restored_by_its_own_run_and_forked_by_others() -> None:
    """Its own run goes back to its id. Another run starts from it until that run has a snapshot of its own."""
    snapshot = Snapshot(sample.manifest(), lambda handle: b"", sample.CODEC)
    assert origin_of(snapshot, sample.RUN) == Origin(sample.SNAPSHOT_ID, None)
    assert origin_of(snapshot, "another") == Origin("latest", (sample.RUN, sample.SNAPSHOT_ID))


def test_a_plan_is_what_the_check_finds() -> None:
    """The plan has the same reason as the refusal, and writes nothing. A fresh start is a plan, too."""
    graph = Graph(sample.RUN).add("a", _Numbers()).add("b", _Ledger()).connect("a", "b")
    compiled = build(graph, "unaligned")
    store = _store(compiled, None, None, None)
    files = set(store.backend.files())
    for restore_from in ("latest", LEFT, None):
        plan = plan_of(sample.RUN, graph, restore_from, (), lambda run: store)
        refusal = nullcontext() if plan.reason is None else pytest.raises(RestoreRefused, match=escape(plan.reason))
        with refusal:
            check_restore(sample.RUN, compiled, origin_of(restore_from, sample.RUN), (), lambda run: store)
        assert plan.snapshot_id == {"latest": NEWEST, LEFT: LEFT, None: None}[restore_from]
    assert set(store.backend.files()) == files
    fresh = plan_of("new", graph, "latest", (), lambda run: RunStore(MemoryBackend(), run))
    assert (fresh.run, fresh.snapshot_id, fresh.isRefused) == ("new", None, False)
    with pytest.raises(RestoreRefused, match="has no snapshot 7"):
        plan_of(sample.RUN, graph, 7, (), lambda run: store)
