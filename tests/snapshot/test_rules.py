"""Each rule of the core is needed: with it taken away, a checker says so, by name."""

from __future__ import annotations

import pytest

from snapshot.errors import ChannelError, NodeError
from tests.snapshot.campaign import Options, run_campaign, seeded
from tests.snapshot.mutants import MUTANTS, Mutant
from tests.snapshot.truth import CheckFailed

#: Runs after which a mutant counts as not caught; most are caught in the first five.
_SEEDS_MAX = 600


def caught(seed: int, options: Options) -> tuple[str, str] | None:
    """The checker that one run fails, and what it says."""
    try:
        run_campaign(seeded(seed), options)
    except CheckFailed as failure:
        return failure.checker, str(failure)
    except ChannelError as error:
        return "sequence", str(error)
    except NodeError as error:
        # The core's own refusal, raised in `send` or `handle`, below the node's hook.
        if isinstance(error.__cause__, ChannelError):
            return "sequence", str(error.__cause__)
        raise
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.name}")
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core without this rule is caught, by one of the checkers that are meant to catch it."""
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        for seed in range(_SEEDS_MAX):
            found = caught(seed, mutant.options)
            if found is not None:
                break
        else:
            pytest.fail(f"PROTOCOL {mutant.rule}: the core that {mutant.name} passed {_SEEDS_MAX} runs")
    checker, text = found
    print(f"PROTOCOL {mutant.rule}: the core that {mutant.name} is caught by {text[:200]} (seed {seed})")
    assert checker in mutant.caught_by, text
