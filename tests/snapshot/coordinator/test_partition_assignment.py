"""Partitions belong to the subtask that has their offset, whatever is listed later (PROTOCOL 6.5, partitions)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import END, Context, Graph, MemoryBackend, Source
from cutline.snapshot.coordinator.partition_assignment import assign_afresh, assign_again, deal_again
from cutline.snapshot.coordinator.recovery import plan_restore
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.node import End
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.history import History
from cutline.snapshot.trace_events import Kind
from cutline.testing import Failure, ListSink, ListSource, Pause, Simulator

POLLING = SubtaskStatus(ended=False, passive=False, has_timers=False, outer_inputs_ended=True, uncommitted=())


def reading(*partitions: str, passive: bool = False) -> SubtaskStatus:
    """The stored status of a subtask that reads `partitions`."""
    return replace(POLLING, partitions=partitions, passive=passive)


def test_a_fresh_start_deals_sorted_names() -> None:
    """In turn, whatever their order; there may be fewer names than subtasks."""
    assert assign_afresh(["b", "c", "a"], 2) == [("a", "c"), ("b",)]
    assert assign_afresh(["x"], 3) == [("x",), (), ()]


def test_each_stored_name_stays() -> None:
    """The order of the list means nothing."""
    stored = [reading("a", "c"), reading("b")]
    for listed in (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]):
        assert assign_again("s", listed, stored, ()) == [("a", "c"), ("b",)]


def test_new_names_go_where_the_fewest_are() -> None:
    """Sorted, so that every coordinator deals them alike."""
    stored = [reading("a", "c"), reading("b"), reading()]
    assert assign_again("s", list("gfedcba"), stored, ()) == [("a", "c", "g"), ("b", "e"), ("d", "f")]


def test_another_parallelism_deals_stored_names_in_turn() -> None:
    """Whoever had them. New names go where the fewest are, also where all that were stored are few."""
    stored = [reading("b", "d"), reading("a"), reading("c")]
    assert deal_again("s", list("dcba"), stored, (), 2) == [("a", "c"), ("b", "d")]
    assert deal_again("s", list("abcd"), stored, (), 5) == [("a",), ("b",), ("c",), ("d",), ()]
    assert deal_again("s", list("abcdefg"), stored, (), 3) == [("a", "d", "g"), ("b", "e"), ("c", "f")]


def test_a_source_that_has_ended_reads_nothing_new_with_another_parallelism() -> None:
    """One subtask that polls is enough, because new subtasks have ended only if all old ones had."""
    ended = [reading("a", passive=True), reading("b", passive=True)]
    assert deal_again("s", ["a", "b"], ended, (), 1) == [("a", "b")]
    with pytest.raises(RestoreRefused, match="s lists the new partitions 'c', but all its subtasks have returned END"):
        deal_again("s", ["a", "b", "c"], ended, (), 3)
    assert deal_again("s", ["a", "b", "c"], [ended[0], reading("b")], (), 3) == [("a",), ("b",), ("c",)]


def test_a_lost_name_is_refused_with_another_parallelism() -> None:
    """As with the old one."""
    stored = [reading("a", "b"), reading("c")]
    with pytest.raises(RestoreRefused, match=r"s read the partitions 'b', which are no longer listed; .*droppedState"):
        deal_again("s", ["a", "c"], stored, (), 3)
    assert deal_again("s", ["a", "c"], stored, ("droppedState",), 3) == [("a",), (), ("c",)]


def test_all_names_are_new_to_a_source_that_had_none() -> None:
    """As it was before its class had the hook. They are dealt as at a fresh start."""
    assert assign_again("s", ["b", "c", "a"], [POLLING, POLLING], ()) == [("a", "c"), ("b",)]
    ended = replace(POLLING, passive=True)
    with pytest.raises(RestoreRefused, match="s lists the new partitions 'a', but all its subtasks have returned END"):
        assign_again("s", ["a"], [ended, ended], ())


def test_a_source_without_names_keeps_its_parallelism() -> None:
    """Nobody can divide its offsets."""
    with pytest.raises(
        RestoreRefused, match=r"s had parallelism 1, now 2, and .* the hook `partitions`.* parallelism 1$"
    ):
        deal_again("s", ["a"], [POLLING], (), 2)


@given(
    stored=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=4), min_size=1, max_size=4),
    new=st.sets(st.sampled_from("ijkl")),
    parallelism=st.integers(1, 6),
    order=st.randoms(use_true_random=False),
)
def test_every_name_is_dealt_once(stored: list[list[str]], new: set[str], parallelism: int, order: Any) -> None:
    """And as evenly as it can be, whatever the order of the list."""
    names = dict.fromkeys(name for names in stored for name in names)
    statuses = [reading(*(name for name in each if names.pop(name, 0) is None)) for each in stored]
    listed = [*(name for status in statuses for name in status.partitions or ()), *sorted(new)]
    dealt = deal_again("s", listed, statuses, (), parallelism)
    assert sorted(name for each in dealt for name in each) == sorted(listed)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    order.shuffle(listed)
    assert deal_again("s", listed, statuses, (), parallelism) == dealt


def test_a_new_name_needs_a_subtask_that_polls() -> None:
    """A subtask that has returned END would never read it, so no such subtask gets one."""
    assert assign_again("s", ["a", "b", "c"], [reading("a", passive=True), reading("b")], ()) == [("a",), ("b", "c")]
    with pytest.raises(RestoreRefused, match=r"^run 'r': source 's' lists the new partitions 'c', 'd', but all its"):
        assert assign_again("run 'r': source 's'", ["c", "a", "d"], [reading("a", passive=True)], ())


def test_a_name_that_is_gone_is_refused_unless_allowed() -> None:
    """It is named; a long list is cut."""
    stored = [reading("a", "\x1b[2J"), reading(*(f"p{number:02}" for number in range(12)))]
    with pytest.raises(RestoreRefused, match=r"read the partitions '\\x1b\[2J', 'p00', .* and 3 more, .*droppedState"):
        assign_again("s", ["a"], stored, ())
    assert assign_again("s", ["a", "b"], stored, ("droppedState",)) == [("a",), ("b",)]


def test_a_source_without_the_hook_drops_all_names() -> None:
    """Its names are in the snapshot, and nobody lists them."""
    with pytest.raises(RestoreRefused, match="'a', which are no longer listed"):
        assign_again("s", (), [reading("a")], ())


_NAMES = st.sets(st.sampled_from("abcdefgh")).map(sorted)


@given(st.data(), st.lists(st.tuples(_NAMES, st.booleans()), min_size=1, max_size=6), st.integers(1, 4))
def test_offsets_stay_with_their_names(data: st.DataObject, later: list[tuple[list[str], bool]], width: int) -> None:
    """Over any sequence of lists: each listed name has one reader, which is the one that has read it before."""
    first = data.draw(_NAMES)
    assigned = assign_afresh(data.draw(st.permutations(first)), width)
    for listed, is_allowed in later:
        before = {name: index for index, names in enumerate(assigned) for name in names}
        statuses = [reading(*names) for names in assigned]
        order = data.draw(st.permutations(listed))
        if set(before) - set(listed) and not is_allowed:
            with pytest.raises(RestoreRefused):
                assign_again("s", order, statuses, ())
            continue
        assigned = assign_again("s", order, statuses, ("droppedState",) if is_allowed else ())
        assert sorted(name for names in assigned for name in names) == sorted(listed)
        after = {name: index for index, names in enumerate(assigned) for name in names}
        assert all(after[name] == index for name, index in before.items() if name in after)


# ---------------------------------------------------------------- whole runs

_listed: list[str] = []


class _Files(Source):
    """Reads three lines of each partition; keeps {partition: offset}. Ends when `is_over` says so."""

    guarantee = "exactly_once"

    def __init__(self, is_over: bool) -> None:
        self.is_over = is_over
        self.offsets: dict[str, int] = {}

    def partitions(self) -> Sequence[str]:
        return list(_listed)

    def poll(self, context: Context) -> float | End | None:
        for partition in context.partitions:
            at = self.offsets.get(partition, 0)
            if at < 3:
                self.offsets[partition] = at + 1
                context.send(f"{partition}{at}")
                return 0.01
        return END if self.is_over else 1.0

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.offsets

    def restoreState(self, state: Any) -> None:
        self.offsets = state


def _graph(is_over: bool) -> Graph:
    graph = Graph("g").add("files", _Files(is_over), parallelism=2).add("out", ListSink())
    return graph.connect("files", "out", key=lambda line: line)


def _submitted(listed: Sequence[str], files: dict[str, bytes], *, is_over: bool) -> History:
    _listed[:] = listed
    steps = 100_000 if is_over else 600
    return Simulator(_graph(is_over), 0, snapshotInterval=0.5, files=files, maxSteps=steps).run()


def _newest(files: dict[str, bytes]) -> Manifest:
    backend = MemoryBackend()
    for path, data in files.items():
        assert backend.put_if_absent(path, [data])
    store = RunStore(backend, "g")
    manifest = store.read_manifest(max(store.manifests()))
    assert isinstance(manifest, Manifest)
    return manifest


@pytest.mark.parametrize("later", [["a", "c"], ["c", "a"], ["b", "c", "a"], ["d", "c", "b", "a"]])
def test_a_run_that_goes_on_reads_each_line_once(later: list[str]) -> None:
    """Of names in another order, and with new names, which are read from their beginning."""
    files: dict[str, bytes] = {}
    first = _submitted(["a", "c"], files, is_over=False).output("out")
    rest = _submitted(later, files, is_over=True)
    assert rest.outcome is Outcome.FINISHED
    assert sorted([*first, *rest.output("out")]) == sorted(f"{name}{at}" for name in later for at in range(3))


def test_the_names_are_stored_with_the_offsets() -> None:
    """Subtask by subtask."""
    files: dict[str, bytes] = {}
    _submitted(["c", "b", "a"], files, is_over=False)
    stored = {str(record.subtask): record.status.partitions for record in _newest(files).records}
    assert stored == {"files[0]": ("a", "c"), "files[1]": ("b",), "out[0]": None}


def test_a_run_is_refused_whose_partition_is_gone() -> None:
    """By name of source and partition, in the coordinator as at the submission."""
    files: dict[str, bytes] = {}
    _submitted(["a", "b"], files, is_over=False)
    refused = _submitted(["a"], files, is_over=True)
    assert refused.outcome is Outcome.FAILED
    assert "source 'files' read the partitions 'b', which are no longer listed" in refused.reason
    compiled = with_partitions(build(_graph(True), "unaligned"), _graph(True))
    plan = plan_restore(compiled.topology, _newest(files), ("droppedState",), compiled.partitions)
    assert {str(each.subtask): each.partitions for each in plan} == {
        "files[0]": ("a",),
        "files[1]": (),
        "out[0]": None,
    }


def test_a_source_that_lists_nothing_any_more_has_lost_all_partitions() -> None:
    """A stored partition is refused by name where the source has no hook now, and dropped where that is allowed."""
    files: dict[str, bytes] = {}
    _submitted(["a", "b"], files, is_over=False)
    topology = build(_graph(True), "unaligned").topology
    with pytest.raises(RestoreRefused, match="source 'files' read the partitions 'a', 'b', which are no longer listed"):
        plan_restore(topology, _newest(files), (), {})
    plan = plan_restore(topology, _newest(files), ("droppedState",), {})
    assert [each.partitions for each in plan] == [(), (), None]


def test_a_rollback_lists_nothing_again() -> None:
    """The list of the submission stays, because subtasks that list anew might see different lists."""
    _listed[:] = ["a", "b"]
    graph = _graph(True).add("failing", ListSource(Pause(0.1), Failure())).connect("failing", "out")
    simulator = Simulator(graph, 0, snapshotInterval=0.03)
    _listed[:] = ["z"]
    history = simulator.run()
    assert history.outcome is Outcome.FINISHED
    assert any("poll of failing[0]" in event.text for event in history.events if event.kind is Kind.FAILED)
    assert sorted(history.output("out")) == ["a0", "a1", "a2", "b0", "b1", "b2"]
