"""The first seeds of each campaign, as unit tests: with the checks of the campaign, and without its conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from tests.snapshot.testing import campaign, recorded, test_stepped_campaign, test_totals_campaign
from tests.snapshot.testing.rescaled_channels import Channels


def _whole_protocol(seed: int) -> None:
    if error := campaign.fails(campaign.case(seed)):
        raise error


#: {campaign: a run of one seed, which raises when something is wrong}
_CAMPAIGNS: dict[str, Callable[[int], object]] = {
    "whole protocol": _whole_protocol,
    "steps": test_stepped_campaign.checked,
    "records": lambda seed: recorded.run(seed, faults=6),
    "channels of chains": lambda seed: Channels(Random(f"channels {seed}")).run(),
    **{
        f"totals, {name}": partial(test_totals_campaign.run, mode=mode, seen=Counter())
        for name, mode in test_totals_campaign.MODES.items()
    },
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", _CAMPAIGNS)
def test_first_seeds_pass(name: str, seed: int) -> None:
    """Whatever fails, the result is that of a run without faults."""
    _CAMPAIGNS[name](seed)
