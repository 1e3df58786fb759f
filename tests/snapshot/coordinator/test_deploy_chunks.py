"""A deployment is cut so that every message of it is small, and comes out whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.rerouting import ChannelEnd, NewChannel, OldChannel, ReshapedEdge, Route
from cutline.snapshot.coordinator import deploy_chunks as module
from cutline.snapshot.coordinator.control import Deploy, DeployTaken, RestoredSubtask
from cutline.snapshot.coordinator.deploy_chunks import DEPLOY_CHUNK_BYTES, DeploymentAssembler, deploy_chunks
from cutline.snapshot.coordinator.deployment import Deployment
from cutline.snapshot.coordinator.machine import Phase
from cutline.snapshot.coordinator.recovery import fresh_start, plan_restore
from cutline.snapshot.failed_event import DeadLetter, FailedMessage, FailedTimer, IsolatedMessages, Suspects
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import ListEntry
from cutline.snapshot.stored.part import Handle
from tests.snapshot import listed, sample
from tests.snapshot.led import Led
from tests.snapshot.sample import TOPOLOGY
from tests.snapshot.testing import campaign

_MIB = 1024 * 1024


def handle(megabytes: int, like: Handle) -> Handle:
    """A handle that carries so much."""
    return replace(like, inline=bytes(megabytes * _MIB), path=None)


def of_megabytes(
    node: int, state: int | None, parts: list[int], rows: list[int] | None = None, own: list[int] | None = None
) -> RestoredSubtask:
    """What a subtask restores, when its state, the parts of its channels and of its lists are so large."""
    stored, received, *_ = (part.inline() for part in sample.parts())
    piece, delta = listed.rows(sample.P, (1, 1), (0, 9)), listed.own(sample.P, (0, 0))
    restored = RestoredSubtask(
        Subtask(f"n{node}"),
        None if state is None else handle(state, stored),
        ((sample.QP, node),),
        ((sample.PQ, 7),),
        tuple(handle(size, received) for size in parts),
    )
    return replace(
        restored,
        groups=None if rows is None else (0, 9),
        rows=tuple(ListEntry(handle(size, piece), at, 9) for at, size in enumerate(rows or ())),
        own=tuple(replace(handle(size, delta), last=at) for at, size in enumerate(own or ())),
    )


SIZES = st.integers(0, 3)
SEVERAL = st.lists(SIZES, max_size=3)
PLANS = st.lists(st.tuples(st.none() | SIZES, SEVERAL, st.none() | SEVERAL, st.none() | SEVERAL), max_size=4).map(
    lambda sizes: [of_megabytes(node, *each) for node, each in enumerate(sizes)]
)


def inline_bytes(chunk: tuple[RestoredSubtask, ...]) -> list[int]:
    """Of each part that it carries."""
    lists = [(*each.channel_parts, *(entry.handle for entry in each.rows), *each.own) for each in chunk]
    handles = [part for each, parts in zip(chunk, lists, strict=True) for part in (each.state, *parts)]
    return [len(part.inline or b"") for part in handles if part is not None]


@given(PLANS)
def test_whatever_is_cut_comes_out_whole(plan: list[RestoredSubtask]) -> None:
    """Instalments are small or of one part, two in a row do not fit into one, and together they are the plan."""
    cut = deploy_chunks(plan)
    sizes = [inline_bytes(each) for each in cut]
    assert all(sum(size) <= DEPLOY_CHUNK_BYTES or len(size) == 1 for size in sizes)
    assert all(sum(a) + b[0] > DEPLOY_CHUNK_BYTES - _MIB for a, b in pairwise(sizes))
    assembler = DeploymentAssembler()
    *taken, whole = [assembler.take(Deploy(3, each, has_more=each is not cut[-1])) for each in cut]
    assert taken == [None] * (len(cut) - 1)
    assert whole == Deploy(3, tuple(plan), has_more=False)


def test_a_subtask_may_be_in_several() -> None:
    """A state and two parts that fill a message each; the numbers of the channels are not repeated."""
    cut = deploy_chunks([of_megabytes(0, 4, [4, 4])])
    assert [inline_bytes(each) for each in cut] == [[4 * _MIB]] * 3
    assert [each[0].processed != () for each in cut] == [True, False, False]


def test_an_entry_is_a_piece() -> None:
    """A list whose entries fill a message each is divided, in order, and keeps its clips and its key groups."""
    plan = of_megabytes(0, None, [], [4, 4, 4], [4, 4])
    cut = deploy_chunks([plan])
    assert [inline_bytes(each) for each in cut] == [[], *[[4 * _MIB]] * 5]
    assert [[entry.lo for part in each for entry in part.rows] for each in cut if each[0].rows] == [[0], [1], [2]]
    assembler = DeploymentAssembler()
    *_, whole = [assembler.take(Deploy(3, each, has_more=each is not cut[-1])) for each in cut]
    assert whole is not None and whole.subtasks == (plan,)


def test_rerouted_channels_weigh_as_others() -> None:
    """Subtasks with 3,000 channels of a reshaped edge each, 3 MB by the estimate, are deployed one by one."""
    old, new = (OldChannel(sample.PQ, 0),) * 1_500, (NewChannel(sample.PQ, 0, ChannelEnd.OPEN),) * 1_500
    edge = ReshapedEdge("P", "Q", 0, Route.WHOLE, 1, 1, 0, old, new)
    plan = [replace(of_megabytes(node, None, []), reshaped=(edge,)) for node in range(3)]
    assert deploy_chunks(plan) == [(each,) for each in plan]


@pytest.mark.parametrize("kind", ["messages", "isolated", "letters", "timers"])
def test_what_failed_weighs_as_channels(kind: str) -> None:
    """Subtasks with 3,000 messages or timers that failed, 3 MB by the estimate, are deployed one by one."""
    failed: dict[str, Any] = {
        "messages": FailedMessage(sample.PQ, 1, b""),
        "isolated": IsolatedMessages(sample.PQ, 1, 2),
        "letters": DeadLetter(sample.PQ, 1, None, ""),
        "timers": FailedTimer(sample.Q, "", b"", 1.0),
    }
    suspects = replace(Suspects(), **{kind: (failed[kind],) * 3_000})
    plan = [replace(of_megabytes(node, None, []), suspects=suspects) for node in range(3)]
    assert deploy_chunks(plan) == [(each,) for each in plan]


def test_a_worker_without_subtasks_is_deployed_too() -> None:
    """It has to say that it is restored like all others."""
    assert deploy_chunks([]) == [()]


def test_an_ordinary_deployment_is_one_message() -> None:
    """States that are in files, or small."""
    plan = plan_restore(TOPOLOGY, sample.manifest(), (), {})
    assert deploy_chunks(plan) == [tuple(plan)]


def test_a_new_incarnation_forgets_what_arrived() -> None:
    """A rollback in the middle: only what the next one brings is made."""
    assembler = DeploymentAssembler()
    one, other = fresh_start(TOPOLOGY, {})
    assert assembler.take(Deploy(1, (one,), has_more=True)) is None
    assert assembler.take(Deploy(2, (other,), has_more=False)) == Deploy(2, (other,), has_more=False)


def deploys(led: Led, message: DeployTaken | None = None) -> list[tuple[int, str, bool]]:
    """(incarnation, nodes, whether more follows) of what is deployed."""
    effects = led.effects if message is None else led.feed(message.worker, message)
    found = led.sent(effects, Deploy)
    return [(each.incarnation, "".join(s.subtask.node for s in each.subtasks), each.has_more) for each in found]


def test_the_next_instalment_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is on its way at a time; what another incarnation confirms, or nobody waits for, brings none."""
    monkeypatch.setattr(module, "DEPLOY_CHUNK_BYTES", 1)
    led = Led(settings=replace(Led().settings, worker_count=1))
    led.register(0)
    assert deploys(led) == [(1, "P", True)]
    assert deploys(led, DeployTaken(0, 2)) == []
    assert deploys(led, DeployTaken(0, 1)) == [(1, "Q", False)]
    assert deploys(led, DeployTaken(0, 1)) == []
    led.fail()
    assert deploys(led)[2:] == [(2, "P", True)]
    assert deploys(led, DeployTaken(0, 1)) == []
    assert led.coordinator.phase is Phase.RESTORING


#: Each takes a fifth of a second.
_SEEDS = range(20)


def test_whole_runs_in_small_instalments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece in a message of its own, under faults: all checkers agree with every run."""
    monkeypatch.setattr(module, "DEPLOY_CHUNK_BYTES", 1)
    confirmed = []
    deploy_taken = Deployment.deploy_taken

    def counted(self: Deployment, worker: int, incarnation: int) -> None:
        confirmed.append(incarnation)
        deploy_taken(self, worker, incarnation)

    monkeypatch.setattr(Deployment, "deploy_taken", counted)
    for seed in _SEEDS:
        campaign.run(campaign.case(seed))
    assert len(confirmed) > len(_SEEDS)
