"""The words for a run's state, which programs read in `Run.status`, in `--json` and on the page."""

from __future__ import annotations

from cutline.snapshot.coordinator.run_state import Outcome, Phase


def test_the_words_of_phases_and_outcomes_stay() -> None:
    """A program that waits for a phase by its word would wait for ever."""
    assert [each.value for each in Phase] == [
        *("claiming", "gathering", "reading", "restoring", "connecting", "replaying", "running", "finishing", "ended")
    ]
    assert [each.value for each in Outcome] == ["finished", "stopped", "failed", "fenced", "superseded"]
