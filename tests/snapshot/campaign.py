"""One random run of the core, whole: a random graph, steps with faults, restarts, and the way to its end.

Everything follows from ``choose``, so a seed repeats a run exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import pytest

from snapshot.channel import channel_sender, output_buffer
from snapshot.plan.compiled_graph import build
from snapshot.plan.declarations import AlignmentWish
from tests.snapshot.network import Network
from tests.snapshot.shapes import make_graph, make_plans, random_shape
from tests.snapshot.walkers import Choose

T = TypeVar("T")

#: Sizes at which a few messages fill a frame and a buffer, so that gates close and cycles spill.
_SMALL_BUFFER_BYTES = 60
_SMALL_FRAME_BYTES = 40
_SMALL_WINDOW_BYTES = 50


@dataclass(frozen=True)
class Options:
    """What a run is chosen from."""

    alignments: tuple[AlignmentWish, ...] = ("unaligned", "aligned", 2.0)
    cycles: tuple[bool, ...] = (False, True)
    crossing: tuple[bool, ...] = (False, False, True)  #: granted where nothing is aligned
    small: tuple[bool, ...] = (False, False, True)  #: small frames, buffers and windows
    nodes_max: int = 4
    parallelism_max: int = 2
    steps: int = 170
    restarts: int = 2  #: at most


ANY = Options()


def seeded(seed: int) -> Choose:
    """All choices of one seed. (`Random.randrange` takes three times as long.)"""
    chance = Random(seed).random
    return lambda n: int(chance() * n)


def run_campaign(choose: Choose, options: Options = ANY) -> Network:
    """Run to the end; raises what a checker or the core finds wrong."""
    alignment = _one(choose, options.alignments)
    cycles = _one(choose, options.cycles)
    shape = random_shape(choose, nodes_max=options.nodes_max, parallelism_max=options.parallelism_max, cycles=cycles)
    plans = make_plans(shape)
    crossing = _one(choose, options.crossing) and alignment == "unaligned"
    anywhere = bool(choose(2))
    with _sizes(small=_one(choose, options.small)) as window:
        compiled = build(make_graph(plans), alignment)
        network = Network(compiled, plans, choose, crossing=crossing, anywhere=anywhere, window=window)
        for number in range(options.restarts + 1):
            for _ in range(options.steps):
                network.step()
            if number < options.restarts and choose(2):
                network.seen["restored messages"] += bool(network.published) and _holds_messages(network)
                network.restart()
        network.finish()
    return network


def _holds_messages(network: Network) -> bool:
    return any(handle.channel is not None for record in network.published[-1].records for handle in record.handles)


def _one(choose: Choose, among: tuple[T, ...]) -> T:
    return among[choose(len(among))]


@contextmanager
def _sizes(*, small: bool) -> Iterator[int | None]:
    """The window of a run, with frames and buffers made small if asked for."""
    if not small:
        yield None
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_buffer, "BUFFER_BYTES_MAX", _SMALL_BUFFER_BYTES)
        patch.setattr(output_buffer, "BUFFER_FRAMES_MIN", 1)
        patch.setattr(channel_sender, "FRAME_BYTES_TARGET", _SMALL_FRAME_BYTES)
        yield _SMALL_WINDOW_BYTES
