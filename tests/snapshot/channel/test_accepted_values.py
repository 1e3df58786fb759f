"""Whatever the codec accepts is read back in another process: equal, of equal types, with equal sharing."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.survey import DEPTH_MAX
from tests.run_size import scaled
from tests.snapshot.channel.strange_values import WAYS, Maker, describe, nested


def _values() -> list[Any]:
    """Random values, and those around the limit of depth."""
    deep = [nested(kind, DEPTH_MAX + more) for kind in (list, tuple, dict) for more in (-1, 0, 1)]
    return [Maker(Random(seed)).value() for seed in range(scaled(800))] + deep


def test_what_is_accepted_is_read_back_elsewhere(tmp_path: Path) -> None:
    """Each way through the codec, safe or not; whatever is refused is refused by type."""
    lines, described = [], []
    #: {(way, result, is safe): values}
    counts = Counter[tuple[str, str, bool]]()
    for value in _values():
        before = describe(value)
        for safe in (False, True):
            codec = Codec(safe=safe)
            for way, (encode, _) in WAYS.items():
                try:
                    data = encode(codec, value)
                except NotSerialisable:
                    counts[way, "refused", safe] += 1
                    continue
                counts[way, "accepted" if data is not None else "alone", safe] += 1
                if data is not None:
                    lines.append(f"{way} {'safe' if safe else 'any'} {data.hex()}")
                    described.append(before)
                assert describe(value) == before
    file = tmp_path / "values"
    file.write_text("\n".join(lines))
    command = [sys.executable, "-c", f"from tests.snapshot.channel.strange_values import main; main({str(file)!r})"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = done.stdout.splitlines()
    assert len(found) == len(described)
    for line, text, before in zip(lines, found, described, strict=True):
        assert text == repr(before), line[:200]
    for way in WAYS:  # so that nothing above is void
        for safe in (False, True):
            assert counts[way, "accepted", safe] > scaled(40), counts
            assert counts[way, "refused" if way not in ("list", "tuples") else "alone", safe] > scaled(20), counts


@pytest.mark.parametrize("kind", [list, tuple, dict])
@pytest.mark.parametrize("way", ["message", "state"])
def test_the_limit_of_depth_is_the_same_for_all(kind: type, way: str) -> None:
    """At the limit a value is accepted; one level deeper it is refused, with its type."""
    encode, decode = WAYS[way]
    assert DEPTH_MAX == 200  # as the API page says
    at_limit = nested(kind, DEPTH_MAX)
    data = encode(Codec(), at_limit)
    assert data is not None
    assert describe(decode(Codec(), data)) == describe(at_limit)
    with pytest.raises(NotSerialisable, match=f"{kind.__name__} cannot be encoded: .* more than {DEPTH_MAX} deep"):
        encode(Codec(), nested(kind, DEPTH_MAX + 1))
