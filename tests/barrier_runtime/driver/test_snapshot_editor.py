"""The editor of snapshots: each edit is restored and the run goes on, an old coordinator stops, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import MemoryBackend, Snapshot, SnapshotEditor, Subtask
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.editing.rows import segments_of
from cutline.snapshot.errors import Fenced, GraphError, NodeError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.signed import SignedBackend
from cutline.state_backends.verify import verify_run
from cutline.testing import Simulator
from tests.snapshot import sample
from tests.snapshot.editing.mended_runs import ITEMS, RUN, graph, in_memory, opened, outcome, simulated

WORDS = ("words", "kinds")
CHANNEL = ChannelId(Subtask("words"), Subtask("kinds", 1))

Edit = Callable[[SnapshotEditor], Any]


def expected(items: list[tuple[str, int]]) -> dict[str, dict[str, Any]]:
    """{state: {key: value}} when all of `items` are processed."""
    by_letter: dict[str, list[int]] = {}
    for letter, number in items:
        by_letter.setdefault(letter, []).append(number)
    return {
        "last": {letter: {"message": numbers[-1]} for letter, numbers in by_letter.items()},
        "words": dict(by_letter),
        "brief": dict(by_letter),
        "entries": {letter: dict.fromkeys(numbers, letter) for letter, numbers in by_letter.items()},
        "n": {letter: len(numbers) for letter, numbers in by_letter.items()},
    }


def listed(values: dict[str, dict[str, Any]]) -> list[Any]:
    """As the run puts the values out, in any order."""
    return sorted(repr(pair) for state in values.values() for pair in state.items())


def after(edit: Edit, *, seed: int = 0, faults: int = 0) -> list[str]:
    """What the run puts out after the edit."""
    files, _ = simulated()
    editor = SnapshotEditor(opened(in_memory(files)))
    edit(editor)
    edited = editor.write(force=True)
    edited.verify()
    assert edited.manifest.edited_from == editor.snapshot.id
    assert not verify_run(in_memory(files), RUN).problems
    return sorted(map(repr, outcome(files, seed=seed, faults=faults)))


# ---------------------------------------------------------------- messages


def test_an_unedited_run_is_the_measure() -> None:
    """Without an edit the run puts out what the model says."""
    files, _ = simulated()
    assert sorted(map(repr, outcome(files))) == listed(expected(ITEMS))


@given(places=st.sets(st.integers(3, 5), min_size=1), seed=st.integers(0, 1 << 16), faults=st.integers(0, 2))
def test_dropped_messages_are_never_processed(places: set[int], seed: int, faults: int) -> None:
    """Of three messages in flight any are dropped, also all. Whatever fails later, the others are processed once."""
    kept = [item for item in ITEMS if item[1] not in places]
    found = after(lambda editor: editor.dropMessages(WORDS, lambda m: m[1] in places), seed=seed, faults=faults)
    assert found == listed(expected(kept))


def test_replaced_messages_are_processed_in_the_place_of_the_old() -> None:
    """Two edits, of which the second sees what the first has made."""

    def edit(editor: SnapshotEditor) -> None:
        editor.replaceMessages(WORDS, lambda m: m[1] == 3, lambda m: ("b", 30))
        editor.replaceMessages(WORDS, lambda m: m[1] == 30, lambda m: ("b", 31))

    items = [("b", 31) if item[1] == 3 else item for item in ITEMS]
    assert after(edit) == listed(expected(items))


def test_a_channel_with_messages_left_is_one_part_of_its_receiver() -> None:
    """S' = max(S, R), w = S' and p' = S' - R at both ends; the other channels and their parts stay as they were."""
    files, _ = simulated()
    before = opened(in_memory(files))
    edited = SnapshotEditor(before).dropMessages(WORDS, lambda m: m[1] == 4).write(force=True)
    assert [(c.sent, c.processed, c.messages) for c in (before.channel(*CHANNEL), edited.channel(*CHANNEL))] == [
        (6, 3, [("a", 3), ("b", 4), ("c", 5)]),
        (6, 4, [("a", 3), ("c", 5)]),
    ]
    (source,), (_, target) = edited.records("words"), edited.records("kinds")
    sent = next(each for each in source.sent if each.channel == CHANNEL)
    received = next(each for each in target.received if each.channel == CHANNEL)
    assert (sent.sent, sent.written, sent.first, sent.last) == (6, 6, 0, 0)
    assert (received.processed, received.written, received.first, received.last) == (4, 6, 5, 6)
    for node in ("words", "kinds", "out"):
        for old, new in zip(before.records(node), edited.records(node), strict=True):
            assert (old.state, old.rows, old.own) == (new.state, new.rows, new.own)
    assert edited.manifest.records[0].incarnation == edited.manifest.incarnation == edited.manifest.claim == 2


# ---------------------------------------------------------------- keyed state


@pytest.mark.parametrize(
    ("state", "value", "then"),
    [
        ("last", {"message": 99}, None),
        ("words", ["x"], ["x", 3, 6, 9]),
        ("words", ["x", "y", "z"], ["x", "y", "z", 3, 6, 9]),
        ("brief", ["x", "y"], ["x", "y", 3, 6, 9]),
        ("entries", {"k": 1}, {"k": 1, 3: "a", 6: "a", 9: "a"}),
        ("n", 100, 103),
    ],
)
def test_a_set_value_is_restored(state: str, value: Any, then: Any) -> None:
    """Each kind of state, shorter and longer than it was; the run goes on from the new value."""
    values = expected(ITEMS)
    if then is not None:
        values[state]["a"] = then
    assert after(lambda editor: editor.setValue("kinds", state, "a", value)) == listed(values)


def test_a_value_of_a_new_key_is_restored() -> None:
    """The key goes to the subtask that owns its group, also to one without rows of its own."""
    values = expected(ITEMS)
    keys = [f"new {number}" for number in range(6)]
    values["n"] |= dict.fromkeys(keys, 7)

    def edit(editor: SnapshotEditor) -> None:
        for key in keys:
            editor.setValue("kinds", "n", key, 7)
        assert len(editor._rows) == 2

    assert after(edit) == listed(values)


@pytest.mark.parametrize("state", ["last", "words", "brief", "entries", "n"])
def test_a_cleared_value_is_gone(state: str) -> None:
    """Of each kind; what comes later begins afresh."""
    values = expected(ITEMS)
    values[state]["a"] = expected([item for item in ITEMS if item[1] >= 3])[state]["a"]
    assert after(lambda editor: editor.clear("kinds", state, "a")) == listed(values)


def test_the_last_edit_of_a_key_counts() -> None:
    """Set, clear and set again, of a value and of a list; a cleared key has nothing left to clear."""

    def edit(editor: SnapshotEditor) -> None:
        for state, values in (("n", (1, 2)), ("words", (["p", "q", "r"], ["s"]))):
            editor.setValue("kinds", state, "a", values[0]).clear("kinds", state, "a")
            with pytest.raises(GraphError, match=f"state '{state}' has no value of the key 'a'"):
                editor.clear("kinds", state, "a")
            editor.setValue("kinds", state, "a", values[1])

    values = expected(ITEMS)
    values["n"]["a"], values["words"]["a"] = 5, ["s", 3, 6, 9]
    assert after(edit) == listed(values)


def test_a_set_value_expires_as_one_written_at_the_cut() -> None:
    """The time-to-live counts from the cut's own time."""
    files, _ = simulated()
    edited = SnapshotEditor(opened(in_memory(files))).setValue("kinds", "entries", "a", {"k": 1}).write(force=True)
    assert edited.node("kinds").keyedState("entries")["a"] == {"k": 1}
    record = edited.records("kinds")[1]
    (segment,) = segments_of((record.rows or ())[-1:], edited.read_part)
    now = NodeState.decode(edited.read_part(record.state), Codec()).now
    expiries = set(segment.rows.column("expires").to_pylist())
    assert expiries == {None, now + 10_000.0}  # None: the tombstone of the entry before


def test_edits_are_written_again_and_elsewhere() -> None:
    """One editor writes as often as it is asked, in its run and in a new one."""
    files, _ = simulated()
    editor = SnapshotEditor(opened(in_memory(files))).setValue("kinds", "n", "a", 5)
    written = [editor.write(force=True), editor.write("other")]
    assert [each.node("kinds").keyedState("n")["a"] for each in written] == [5, 5]


# ---------------------------------------------------------------- the claim


def test_an_old_coordinator_stops() -> None:
    """The coordinator that was active publishes nothing more. The next submission goes on from the edited snapshot."""
    files, simulator = simulated()
    edited = SnapshotEditor(opened(in_memory(files))).dropMessages(WORDS, lambda m: m[1] == 4).write(force=True)
    history = simulator.finish()
    store = RunStore(in_memory(files), RUN)
    old, _, new = store.claims()
    assert (old.owner, new.owner) == ("A", "B")  # fenced, and then submitted again
    assert store.bases()[-1] == Base(3, edited.id)
    assert [each for each in stored_history(store) if each < edited.id] == [edited.manifest.edited_from]
    kept = [item for item in ITEMS if item[1] != 4]
    assert sorted(map(repr, history.output("out"))) == listed(expected(kept))


def test_a_claim_that_comes_between_stops_the_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was submitted while the parts were stored keeps the run, and the edited snapshot is void."""
    files, _ = simulated()
    editor = SnapshotEditor(opened(in_memory(files))).setValue("kinds", "n", "a", 5)
    store_parts = editor.store_parts

    def late(store: RunStore, claim: int, snapshot_id: int) -> Manifest:
        assert store.take_claim(Claim(claim + 1, "someone", "else"))
        assert store.write_base(Base(claim + 1, editor.snapshot.id))
        return store_parts(store, claim, snapshot_id)

    monkeypatch.setattr(editor, "store_parts", late)
    with pytest.raises(Fenced, match="claim 3 took the run"):
        editor.write(force=True)
    assert sorted(map(repr, outcome(files))) == listed(expected(ITEMS))


def test_a_run_is_taken_by_force_only() -> None:
    """The text says what would be lost: an active run, newer snapshots, output that is repeated."""
    files, simulator = simulated()
    old = opened(in_memory(files))
    editor = SnapshotEditor(old).dropMessages(WORDS, lambda m: m[1] == 4)
    with pytest.raises(RestoreRefused, match=r"the run has not finished.*force=True accepts that"):
        editor.write()
    simulator.finish()
    text = "has the newer snapshot .*, which is left behind; output that out committed since is repeated"
    with pytest.raises(RestoreRefused, match=text) as refused:
        editor.write()
    assert "not finished" not in str(refused.value)
    assert editor.write(force=True).id > old.id
    assert sorted(map(repr, outcome(files))) == listed(expected([item for item in ITEMS if item[1] != 4]))


def test_the_result_of_a_finished_run_is_edited_without_force() -> None:
    """Its newest snapshot is final, and so is the edited one."""
    files, simulator = simulated()
    simulator.finish()
    edited = SnapshotEditor(opened(in_memory(files))).setValue("kinds", "n", "a", 5).write()
    assert edited.manifest.final
    assert opened(in_memory(files)).node("kinds").keyedState("n")["a"] == 5


# ---------------------------------------------------------------- a new run


def test_a_new_run_has_parts_of_its_own_only() -> None:
    """The copy stands when the first run is gone, and the run goes on from it to the same end."""
    files, _ = simulated()
    backend = in_memory(files)
    old = opened(backend)
    copy = SnapshotEditor(old).dropMessages(WORDS, lambda m: m[1] == 4).setValue("kinds", "n", "b", 50).write("copy")
    assert (copy.run, copy.manifest.edited_from) == ("copy", old.id)
    assert opened(backend).id == old.id  # the first run has no new claim
    assert {handle.run for record in copy.manifest.records for handle in record.all_handles} == {"copy"}
    assert copy.node("kinds").changes == old.node("kinds").changes
    alone = {path: data for path, data in files.items() if path.startswith("copy/")}
    opened(in_memory(alone), "copy").verify()
    values = expected([item for item in ITEMS if item[1] != 4])
    values["n"]["b"] = 52
    assert sorted(map(repr, outcome(alone, "copy", seed=5, faults=2))) == listed(values)


def test_the_copied_snapshot_is_held_until_the_copy_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention of the first run cannot take what is being copied; afterwards nothing holds it (PROTOCOL 10.5)."""
    files, _ = simulated()
    backend = in_memory(files)
    old = opened(backend)
    store = RunStore(backend, RUN)
    newer = replace(old.manifest, snapshot_id=old.id + 1)
    assert store.write_manifest(newer)
    editor = SnapshotEditor(old)
    store_parts = editor.store_parts

    def late(*at: Any) -> Manifest:
        assert not store.delete_snapshot(old.id, [newer.snapshot_id], 1)
        return store_parts(*at)

    monkeypatch.setattr(editor, "store_parts", late)
    editor.write("copy")
    assert store.delete_snapshot(old.id, [newer.snapshot_id], 1)


def test_a_signed_run_stays_signed() -> None:
    """In its own run and in a new one every file is signed with the run's key."""
    files, _ = simulated()
    signed = SignedBackend(MemoryBackend(), b"k" * 16)
    for path, data in files.items():
        assert signed.put_if_absent(path, [data])
    editor = SnapshotEditor(opened(signed)).setValue("kinds", "n", "a", 5)
    written = [editor.write(force=True), editor.write("copy")]
    for each in written:
        opened(signed, each.run).verify()
        assert not verify_run(signed, each.run).problems
        with pytest.raises(RestoreRefused, match="is signed"):
            RunStore(signed.unsigned, each.run).read_manifest(each.id)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("edit", "error", "text"),
    [
        (lambda e: e.dropMessages(("words", "nowhere"), bool), GraphError, "no node 'nowhere'; the graph's nodes are"),
        (lambda e: e.dropMessages(("out", "words"), bool), GraphError, "0 channels from out to words; .* edges are"),
        (lambda e: e.dropMessages("words->kinds", bool), GraphError, r"given as \(source, target\)"),
        (lambda e: e.dropMessages(WORDS, lambda m: False), GraphError, "true for none of 3 messages in flight"),
        (lambda e: e.replaceMessages(("kinds", "out"), bool, str), GraphError, "none of 0 messages in flight"),
        (lambda e: e.setValue("nowhere", "n", "a", 1), GraphError, "no node 'nowhere'"),
        (
            lambda e: e.setValue("kinds", "m", "a", 1),
            GraphError,
            "no rows of a state 'm'; there are brief, entries, last, n, words",
        ),
        (lambda e: e.setValue("kinds", "#timers", "a", 1), GraphError, "no rows of a state '#timers'; there are brief"),
        (lambda e: e.clear("out", "n", "a"), GraphError, "no rows of a state 'n'; there are none"),
        (lambda e: e.clear("kinds", "n", "absent"), GraphError, "state 'n' has no value of the key 'absent'"),
        (lambda e: e.setValue("kinds", "n", 1.5, 1), GraphError, "float cannot be a key"),
        (lambda e: e.setValue("kinds", "n", "a", None), NodeError, "state 'n', key 'a': None is no value"),
        (lambda e: e.setValue("kinds", "words", "a", "text"), GraphError, "takes a list with items, not 'text'"),
        (lambda e: e.setValue("kinds", "entries", "a", {}), GraphError, "takes a dict with entries, not {}: clear"),
        (lambda e: e.write(), RestoreRefused, "nothing was edited"),
        (lambda e: e.write(""), RestoreRefused, "run name ''"),
        (lambda e: [e.write("copy"), e.write("copy")], RestoreRefused, "there is a run 'copy' already"),
    ],
)
def test_what_cannot_be_edited_is_refused(edit: Edit, error: type[Exception], text: str) -> None:
    """By a text that names what is wrong, and the snapshot stays as it was."""
    files, _ = simulated()
    with pytest.raises(error, match=text):
        edit(SnapshotEditor(opened(in_memory(files))))
    assert sorted(map(repr, outcome(files))) == listed(expected(ITEMS))


def test_a_snapshot_without_a_store_is_refused() -> None:
    """A snapshot of a simulated history has no place to write to."""
    _, simulator = simulated()
    editor = SnapshotEditor(simulator.history.snapshots[0]).setValue("kinds", "n", "a", 1)
    with pytest.raises(RestoreRefused, match="is not in a store"):
        editor.write("copy")


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """No edit passes over a statement that it cannot read."""
    manifest = sample.manifest_with_sent(sample.sent_part(*sample.UNKNOWN_STATEMENT))
    editor = SnapshotEditor(Snapshot(manifest, lambda handle: handle.inline or b"", sample.CODEC))
    with pytest.raises(SnapshotCorrupt, match=r"P\[0\]->Q\[0\].*message 8 is a control frame"):
        editor.dropMessages(("P", "Q"), lambda message: message == "six")


def test_a_broken_edit_is_never_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked before the manifest is written."""
    files, _ = simulated()
    monkeypatch.setattr("cutline.snapshot.editing.mended_snapshot.renumbered", lambda frames, first: list(frames))
    editor = SnapshotEditor(opened(in_memory(files))).dropMessages(WORDS, lambda m: m[1] == 4)
    with pytest.raises(SnapshotCorrupt):
        editor.write(force=True)
    assert opened(in_memory(files)).id == editor.snapshot.id


@given(seed=st.integers(0, 1 << 16))
def test_any_cut_is_edited_exactly(seed: int) -> None:
    """Whatever a random run had in flight, ends of streams too: dropping odd numbers leaves the even ones."""
    files: dict[str, bytes] = {}
    simulator = Simulator(graph(), seed, files=files)
    simulator.run()
    backend = in_memory(files)
    for each in RunStore(backend, RUN).read_snapshots(Codec()):
        _check_cut(each, backend)


def _check_cut(cut: Snapshot, backend: Any) -> None:
    channels = cut.channels_between(*WORDS)
    messages = [message for channel in channels for message in cut.channel(*channel).messages]
    if not any(number % 2 for _, number in messages):
        return
    name = f"copy-{cut.id}"
    edited = SnapshotEditor(cut).dropMessages(WORDS, lambda m: m[1] % 2).write(name)
    left = [message for channel in channels for message in edited.channel(*channel).messages]
    assert left == [message for message in messages if not message[1] % 2]
    for channel in channels:
        before, after_edit = cut.channel(*channel), edited.channel(*channel)
        assert before.sent == after_edit.sent
        ends = [frame.kind for frame in cut.frames_of(channel)].count(PayloadKind.CONTROL)
        assert [frame.kind for frame in edited.frames_of(channel)].count(PayloadKind.CONTROL) == ends
        assert after_edit.sent - after_edit.processed == len(after_edit.messages) + ends
