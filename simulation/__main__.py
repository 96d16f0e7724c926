"""Runs seeds: ``python -m simulation --seeds 200`` or ``--seed 2-17``."""

import argparse
import sys
import time
from collections.abc import Sequence

from simulation.many import run_seed, run_seeds
from simulation.planted import BUGS, ON_KAFKA
from simulation.seeds import parse_seed, seed_text

TELL_EVERY = 100


def main(given: Sequence[str] | None = None) -> int:
    """Run the seeds; returns 1 when one fails, 2 for a seed of another version."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", help="replay this one seed, such as 2-17")
    parser.add_argument("--story", default="", help="also show the story of these, or of all")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--plant", default="", choices=["", *BUGS], help="with this planted bug")
    parser.add_argument("--kafka", action="store_true", help="sources publish on brokers")
    parser.add_argument("--keep-going", action="store_true", help="run the seeds after a failure")
    arguments = parser.parse_args(given)
    on_kafka = arguments.kafka or arguments.plant in ON_KAFKA
    if arguments.seed is not None:
        try:
            seed = parse_seed(arguments.seed)
        except ValueError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 2
        return _replay(seed, arguments.plant, arguments.story, on_kafka=on_kafka)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    return _run(seeds, arguments.plant, on_kafka=on_kafka, keep_going=arguments.keep_going)


def _replay(seed: int, plant: str, story: str, *, on_kafka: bool) -> int:
    items = None if not story else [] if story == "all" else story.split(",")
    outcome = run_seed(seed, plant, items, on_kafka=on_kafka)
    if outcome.story:
        print(outcome.story)  # noqa: T201
    if outcome.summary is None:
        return 1
    print(outcome.summary)  # noqa: T201
    return 0


def _run(seeds: range, plant: str, *, on_kafka: bool, keep_going: bool) -> int:
    started_s = time.monotonic()
    failed: list[str] = []
    for done, outcome in enumerate(run_seeds(seeds, plant=plant, on_kafka=on_kafka), 1):
        if outcome.summary is None:
            failed.append(seed_text(outcome.seed))
            print(outcome.story, file=sys.stderr)  # noqa: T201
            if not keep_going:
                break
        if done % TELL_EVERY == 0 or done == len(seeds):
            elapsed_s = time.monotonic() - started_s
            held = done - len(failed)
            print(f"{held} of {done} seeds held, {elapsed_s:.0f} s", flush=True)  # noqa: T201
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
