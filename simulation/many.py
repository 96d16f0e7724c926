"""Runs many seeds on all cores; the results depend only on the seeds."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from simulation.planted import planted
from simulation.seeds import seed_text
from simulation.simulation import Simulation, SimulationError, Summary

SEEDS_AT_A_TIME = 10
#: Bounds memory: a process is replaced after this many work items.
PIECES_PER_PROCESS = 50


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed: its summary, or the broken rule and its story."""

    seed: int
    summary: Summary | None = None
    rule: str = ""
    story: str = ""


def run_seed(
    seed: int, plant: str = "", story_of: Sequence[str] | None = None, *, on_kafka: bool = False
) -> Outcome:
    """Run one seed, optionally with a planted bug; ``story_of`` adds the story of these items."""
    replay = f"make simulate SEED={seed_text(seed)}" + (f" PLANT={plant}" if plant else "")
    if on_kafka:
        replay += " KAFKA=1"
    with planted(plant):
        simulation = Simulation(seed, on_kafka=on_kafka, replay=replay)
        try:
            summary = simulation.run()
        except SimulationError as error:
            told = "" if story_of is None else simulation.story(story_of)
            return Outcome(seed, rule=error.rule, story=f"{told}\n{error}" if told else str(error))
        story = "" if story_of is None else simulation.story(story_of)
        return Outcome(seed, summary=summary, story=story)


def run_seeds(
    seeds: Sequence[int],
    *,
    plant: str = "",
    on_kafka: bool = False,
    processes: int | None = None,
) -> Iterator[Outcome]:
    """Run seeds; yields outcomes in seed order. Close the iterator to stop early."""
    count = min(processes or os.cpu_count() or 1, len(seeds))
    if count == 1:
        yield from map(partial(run_seed, plant=plant, on_kafka=on_kafka), seeds)
        return
    pieces = [seeds[at : at + SEEDS_AT_A_TIME] for at in range(0, len(seeds), SEEDS_AT_A_TIME)]
    context = get_context("spawn")
    with context.Pool(count, maxtasksperchild=PIECES_PER_PROCESS) as pool:
        run = partial(_run_piece, plant=plant, on_kafka=on_kafka)
        for outcomes in pool.imap(run, pieces):
            yield from outcomes


def _run_piece(seeds: Sequence[int], *, plant: str, on_kafka: bool) -> list[Outcome]:
    return [run_seed(seed, plant, on_kafka=on_kafka) for seed in seeds]
