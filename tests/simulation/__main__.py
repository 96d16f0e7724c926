"""Runs seeds: ``python -m tests.simulation --seeds 200`` or ``--seed 17``."""

import argparse
import sys
import time

from tests.simulation.group_simulation import GroupSimulation, SimulationError


def main() -> int:
    """Run the seeds; returns 1 at the first that fails."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    arguments = parser.parse_args()
    seeds = (
        range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        if arguments.seed is None
        else range(arguments.seed, arguments.seed + 1)
    )
    started = time.monotonic()
    for done, seed in enumerate(seeds, 1):
        try:
            GroupSimulation(seed).run()
        except SimulationError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        if done % 100 == 0 or done == len(seeds):
            elapsed_s = time.monotonic() - started
            print(f"{done} of {len(seeds)} seeds held, {elapsed_s:.0f} s")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
