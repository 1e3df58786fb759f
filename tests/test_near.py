"""Which tests are near a change."""

from __future__ import annotations

from tests.near import near_tests


def test_mirrored_tests_are_nearest_then_importing_ones() -> None:
    """A test that imports what imports the changed file is farther than one that imports the file."""
    near = near_tests(["snapshot/subtask/timers.py"])
    assert near["tests/snapshot/subtask/test_timers.py"] == 0
    assert near["tests/test_tidy.py"] == 0
    assert {near[each] for each in near if near[each] > 0} == {1, 2}
    assert "tests/snapshot/channel/test_credits.py" not in near


def test_a_changed_test_is_near_itself() -> None:
    """The helpers of tests have importers, too."""
    assert near_tests(["tests/snapshot/test_alignment.py"])["tests/snapshot/test_alignment.py"] == 0
    assert near_tests(["tests/snapshot/fence_model.py"])["tests/snapshot/coordinator/test_fence.py"] == 1


def test_modules_are_found_among_imported_names() -> None:
    """`from package import module` imports the module."""
    assert near_tests(["snapshot/testing/store_trial.py"])["tests/snapshot/testing/test_check_store.py"] == 1
