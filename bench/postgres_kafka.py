"""The CPU of rows and changes of PostgreSQL on their way into topics, by kind of process.

Drover alone, with JSON with and without schemas: what a schema costs is the difference.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from bench import cdc_changes, jdbc_source
from bench.cdc_changes import Capture, Changes
from bench.databases import (
    DROVER,
    JSON_BOTH,
    ROUNDS,
    ROW_COUNT,
    Contestant,
    Servers,
    fill_table,
    make_table,
    measured_servers,
)
from bench.figure import Figure
from bench.jdbc_source import read_table
from bench.kafka_sides import drover_side
from bench.rounds import DROVERS_KINDS, SHARED_KINDS, Round, cpu_us

#: The settings of each form of JSON, by the name in the figures.
FORMS: Mapping[str, Mapping[str, str]] = {
    "schemas": JSON_BOTH,
    "plain": {
        **JSON_BOTH,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    },
}
_LIMITS = {("rows", "schemas"): "<= 7 us", ("changes", "schemas"): "<= 12 us"}


async def rows(
    servers: Servers, who: Contestant, form: str, numbers: Sequence[int], row_count: int
) -> Sequence[Round]:
    """Rounds of the whole table, each into a new topic."""
    found = []
    for number in numbers:
        prefix = f"{who.key}-{form}-{number}"
        config = jdbc_source.drover_config(servers.postgres, prefix)
        found.append(await read_table(servers, who, prefix, {**config, **FORMS[form]}, row_count))
    return found


@asynccontextmanager
async def captures(
    servers: Servers, who: Contestant, change_count: int
) -> AsyncIterator[Mapping[str, Capture]]:
    """A stopped connector for each form, all at the same position of the log."""
    made = {}
    for form in FORMS:
        key = f"{who.key}_{form}"
        config = {**cdc_changes.drover_config(servers.postgres, key), **FORMS[form]}
        capture = Capture(servers, Contestant(key, who.side), config, change_count)
        await capture.begin()
        made[form] = capture
    try:
        yield made
    finally:
        for capture in made.values():
            await capture.close()


async def measure(
    servers: Servers, who: Contestant, *, count: int = ROW_COUNT, rounds: int = ROUNDS
) -> Sequence[Figure]:
    """The figures; forms alternate, and each has a warm-up round."""
    done: dict[tuple[str, str], list[Round]] = {}
    make_table(servers.postgres, jdbc_source.TABLE)
    fill_table(servers.postgres, jdbc_source.TABLE, first=1, last=count)
    for number in range(rounds + 1):
        for form in FORMS:
            (found,) = await rows(servers, who, form, [number], count)
            done.setdefault(("rows", form), []).append(found)
    changes = Changes(servers.postgres, count)
    async with captures(servers, who, count) as capturing:
        await asyncio.to_thread(changes.make)
        for capture in capturing.values():
            await capture.stop()
        for _ in range(rounds + 1):
            await asyncio.to_thread(changes.make)
            for form, capture in capturing.items():
                done.setdefault(("changes", form), []).append(await capture.read())
    return [
        figure
        for (unit, form), found in done.items()
        for figure in figures_of(unit, form, found[1:])
    ]


def figures_of(unit: str, form: str, done: Sequence[Round]) -> Iterator[Figure]:
    """The rate, and the CPU of a record: of all processes, and of each kind."""
    name = f"postgres_kafka_{unit}_{form}"
    samples = [each.per_s for each in done]
    unit_s = f"{unit}/s ({done[0].count}, start and all)"
    yield Figure(name, statistics.median(samples), unit_s, samples=samples)
    kinds = (*DROVERS_KINDS, *SHARED_KINDS)
    yield Figure(
        f"{name}_cpu",
        cpu_us(done, kinds),
        f"us of CPU for one of {unit}, with the broker's and PostgreSQL's",
        limit=_LIMITS.get((unit, form), ""),
        samples=[cpu_us([each], kinds) for each in done],
    )
    for kind in kinds:
        yield Figure(f"{name}_cpu", cpu_us(done, (kind,)), f"us of CPU for one of {unit}: {kind}")


def figures() -> Iterator[Figure]:
    """CPU by process of PostgreSQL's rows and changes into topics, with and without schemas."""
    with measured_servers("postgres-kafka") as found:
        if found is None:
            return
        _, bootstrap, folder, postgres = found
        servers = Servers(postgres, bootstrap)

        async def measured() -> Sequence[Figure]:
            async with drover_side(bootstrap, folder / "drover") as side:
                return await measure(servers, Contestant(DROVER, side))

        yield from asyncio.run(measured())
