"""Fingerprints of states: two states have one only if all that they hold is equal."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.testing.exploration.fingerprint import fingerprint


class Slotted:
    __slots__ = ("first",)

    def __init__(self, first: int) -> None:
        self.first = first


class Derived(Slotted):
    __slots__ = ("second",)

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.second = second


class Reduced(Slotted):
    __slots__ = ()

    def __reduce__(self) -> tuple[type[Reduced], tuple[int]]:
        return Reduced, (self.first,)


@dataclass
class Record:
    value: object


def test_inherited_slots_are_held_too() -> None:
    """A state that differs only in the part of a base class is another state."""
    assert fingerprint(Derived(1, 2)) == fingerprint(Derived(1, 2))
    assert len({fingerprint(each) for each in (Derived(1, 2), Derived(3, 2), Derived(1, 3), Slotted(1))}) == 4


def test_objects_with_a_pickle_of_their_own() -> None:
    """Their content is what their own method returns."""
    assert fingerprint(Reduced(1)) == fingerprint(Reduced(1)) != fingerprint(Reduced(2))


def test_a_shared_object_is_not_two_equal_ones() -> None:
    """A change of the one changes the other later."""
    shared = [1]
    assert fingerprint(Record([shared, shared])) != fingerprint(Record([shared, [1]]))
