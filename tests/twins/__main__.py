"""Recompute all digests, and print what differs from the stored ones.

python -m tests.twins                          # exit code 1 where something differs
python -m tests.twins --only "deltas, fork"    # one label, or several
python -m tests.twins --write                  # stores the digests; the commit says why they are others
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from time import process_time

from tests.twins.digest import Digests, differences, read_digests, write_digests
from tests.twins.runs import RUNS, measured

#: Seeds of a label whose differences are printed.
_SHOWN = 3


def main(arguments: Sequence[str]) -> int:
    """See the module's docstring."""
    parser = ArgumentParser(prog="python -m tests.twins", description="Recompute the digests of simulated runs.")
    parser.add_argument("--write", action="store_true", help="store the digests")
    parser.add_argument("--only", action="append", choices=RUNS, metavar="LABEL", help="one label; may be repeated")
    options = parser.parse_args(arguments)
    stored = read_digests()
    found: Digests = {}
    differing, begun = 0, process_time()
    for label in options.only or RUNS:
        label_begun = process_time()
        runs = {seed: measured(label, seed) for seed in range(RUNS[label].seeds)}
        found[label] = {seed: run.digest for seed, run in runs.items()}
        texts = {seed: differences(stored.get(label, {}).get(seed), run) for seed, run in runs.items()}
        others = [seed for seed in texts if texts[seed]]
        differing += len(others)
        print(f"{process_time() - label_begun:6.1f} s  {label}: {len(others)} of {len(runs)} seeds differ")
        for seed in others[:_SHOWN]:
            print("\n    ".join([f"  seed {seed}:", *texts[seed]]))
    unknown = [] if options.only else sorted(stored.keys() - RUNS.keys())
    print(f"{process_time() - begun:6.1f} s  in all: {differing} digests differ")
    if unknown:
        print(f"labels without a run: {', '.join(unknown)}")
    if options.write:
        write_digests({label: digests for label, digests in (stored | found).items() if label in RUNS})
        return 0
    return 1 if differing or unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
