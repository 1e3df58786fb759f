"""Paths: every name has one, no two share one, and all are read back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import check_path
from cutline.snapshot.stored.part import own_part, rows_part
from tests.snapshot import sample

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300) | st.text(
    "ab./%+_: A\0", min_size=1, max_size=500
)


@given(NAMES, st.sampled_from(["claims/00000001", "parts/1/x"]))
@example("../x", "claims/1")
@example("..", "claims/1")
@example(".", "claims/1")
@example("a/b", "claims/1")
@example("\0", "claims/1")
@example("." * 700, "claims/1")
@example("☃" * 300, "claims/1")
@example("a" * 199 + ".." + "a" * 198 + ".", "claims/1")
def test_run_names_come_back(name: str, below: str) -> None:
    """Any name is a safe path of short segments, and the path is the name's and nobody else's."""
    folder = layout.run_folder(name)
    check_path(folder)
    assert all(len(segment.encode()) <= layout.SEGMENT_BYTES_MAX + 1 for segment in folder.split("/"))
    assert layout.split_run(f"{folder}/{below}") == (name, below)


@given(NAMES, NAMES)
@example("a__b", "a::b")
@example("a+", "a")
@example("%41", "A")
@example("a" * 200, "a" * 201)
def test_no_two_names_meet(one: str, other: str) -> None:
    """Different names have different folders, and neither is inside the other's."""
    if one != other:
        a, b = f"{layout.run_folder(one)}/claims/", f"{layout.run_folder(other)}/claims/"
        assert not a.startswith(b)
        assert not b.startswith(a)


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_impossible_names_are_refused(name: str) -> None:
    """What is no text has no path."""
    with pytest.raises(ValueError, match="run's name"):
        layout.run_folder(name)


@pytest.mark.parametrize("path", ["x", "%zz/claims/1", "%ff/claims/1", "a+/b+", "A%41/claims/1", "b+/c/claims/1"])
def test_what_is_no_runs_folder_is_told(path: str) -> None:
    """A path that `run_folder` never makes belongs to no run."""
    assert layout.split_run(path) is None


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_numbers_come_back_in_order(one: int, other: int) -> None:
    """Paths of claims, bases and manifests say their numbers; up to their width they sort like them."""
    for path_of, number_of in (
        (layout.claim_path, layout.claim_number),
        (layout.base_path, layout.base_claim),
        (layout.manifest_path, layout.manifest_id),
    ):
        assert number_of(path_of(one)) == one
        assert number_of("x" + path_of(one)) is None
    if max(one, other) < 10**16:
        assert (layout.manifest_path(one) < layout.manifest_path(other)) == (one < other)


HANDLE = sample.parts()[0].handle


@given(NAMES, st.integers(0, 10**6), st.integers(0, 10**12))
def test_the_path_of_parts_says_their_origin(node: str, incarnation: int, snapshot_id: int) -> None:
    """The collector reads incarnation and snapshot from the path of any file of parts."""
    handle = replace(HANDLE, incarnation=incarnation, snapshot_id=snapshot_id, subtask=Subtask(node, 2))
    path = layout.parts_path(handle)
    check_path(path)
    assert all(len(segment.encode()) <= layout.SEGMENT_BYTES_MAX for segment in path.split("/"))
    assert layout.part_origin(path) == (incarnation, snapshot_id)


def test_parts_of_different_origin_have_different_paths() -> None:
    """Whatever the origin differs in, the path does too, also behind names that look alike when shortened."""
    others = [
        HANDLE,
        replace(HANDLE, run="other"),
        replace(HANDLE, incarnation=8),
        replace(HANDLE, snapshot_id=8),
        *(replace(HANDLE, subtask=Subtask("P", index)) for index in (1, 2)),
        *(replace(HANDLE, subtask=Subtask(node)) for node in ("a__b", "a::b", "n" * 100 + "a", "n" * 100 + "b")),
    ]
    paths = [layout.parts_path(handle) for handle in others]
    assert len(dict.fromkeys(paths)) == len(paths)


@given(NAMES, st.integers(0, 10**6), st.integers(0, 10**12), st.binary(max_size=9))
def test_the_path_of_a_piece_says_its_origin(node: str, incarnation: int, snapshot_id: int, body: bytes) -> None:
    """Its digest is that of the content, so equal content has one path, and other content has another."""
    subtask = Subtask(node, 2)
    at = (sample.RUN, incarnation, snapshot_id, subtask)
    handle = rows_part(*at, (1, 1), (0, 9), [body], 1).handle
    path = layout.rows_path(handle)
    check_path(path)
    assert all(len(segment.encode()) <= layout.SEGMENT_BYTES_MAX for segment in path.split("/"))
    assert layout.part_origin(path) == (incarnation, snapshot_id)
    assert f"/{snapshot_id:016}-rows-" in path and path.endswith(f"-2-{handle.checksum.hex()}")
    others = [
        rows_part(*at, (1, 1), (0, 9), [body, b"x"], 1).handle,
        rows_part(*at, (1, 2), (0, 9), [body], 1).handle,
        rows_part(*at, (1, 1), (0, 8), [body], 1).handle,
        own_part(*at, (1, 1), [body]).handle,
        replace(handle, incarnation=incarnation + 1),
        replace(handle, snapshot_id=snapshot_id + 1),
    ]
    paths = [path, layout.parts_path(handle), *map(layout.rows_path, others)]
    assert len(dict.fromkeys(paths)) == len(paths)
    assert layout.rows_path(rows_part(*at, (1, 1), (0, 9), [body], 1).handle) == path
