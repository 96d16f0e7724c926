"""`make bench`: every figure, one JSON object a line; ``--only`` for some of them."""

import argparse
import os
from collections.abc import Callable, Iterable

from bench import (
    bad_rows,
    cluster,
    config_load,
    config_seen,
    connectors,
    console,
    engine_start,
    fail_over,
    gateway,
    hand_over,
    heartbeats,
    java,
    joins,
    kafka_connectors,
    kafka_copy,
    kafka_first_row,
    kafka_kill,
    kafka_latency,
    lake_upserts,
    memory,
    postgres_kafka,
    postgres_to_parquet,
    rebalance_core,
    rolling_restart,
    rows_job,
    small_tasks,
    spark_cluster,
    status_writes,
)
from bench.figure import Figure
from tests.support.class_archive import archive_path, start_writing, use_archive

_ARCHIVE_TIMEOUT_S = 600

#: Parts that can run alone, the quick ones first.
PARTS: dict[str, Callable[[], Iterable[Figure]]] = {
    "joins": joins.figures,
    "heartbeats": heartbeats.figures,
    "fail-over": fail_over.figures,
    "rebalance-core": rebalance_core.figures,
    "hand-over": hand_over.figures,
    "rolling-restart": rolling_restart.figures,
    "config-seen": config_seen.figures,
    "config-load": config_load.figures,
    "status-store": status_writes.figures,
    "cluster": cluster.figures,
    "gateway": gateway.figures,
    "console": console.figures,
    "engine-start": engine_start.figures,
    "rows-job": rows_job.figures,
    "bad-rows": bad_rows.figures,
    "kafka-copy": kafka_copy.figures,
    "kafka-json": kafka_copy.json_figures,
    "kafka-long-copy": kafka_copy.long_figures,
    "kafka-connectors": kafka_connectors.figures,
    "kafka-first-row": kafka_first_row.figures,
    "kafka-kill": kafka_kill.figures,
    "kafka-latency": kafka_latency.figures,
    "kafka-small-tasks": small_tasks.figures,
    "memory": memory.idle_figures,
    "memory-growth": memory.growth_figures,
    "databases": connectors.figures,
    "postgres-kafka": postgres_kafka.figures,
    "java": java.figures,
    "spark-cluster": spark_cluster.figures,
    "lake-upserts": lake_upserts.figures,
    "postgres-to-parquet": postgres_to_parquet.figures,
}
#: Names for several parts.
SETS = {
    "coordinator": ("joins", "heartbeats", "fail-over"),
    "config-store": ("config-seen", "config-load"),
    "connectors": ("databases", "postgres-to-parquet", "lake-upserts"),
    "rebalances": ("rebalance-core", "hand-over", "rolling-restart"),
    "kafka": (
        "kafka-copy",
        "kafka-json",
        "kafka-long-copy",
        "kafka-connectors",
        "kafka-first-row",
        "kafka-kill",
        "kafka-latency",
        "kafka-small-tasks",
        "memory",
        "memory-growth",
    ),
}


def _arguments() -> argparse.Namespace:
    described = [f"  {name}: {measure.__doc__}" for name, measure in PARTS.items()]
    described += [f"  {name}: {', '.join(parts)}" for name, parts in SETS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure, and print one JSON object a line: figure, value, unit; peer and"
        " ratio (value / peer) or limit; samples are the rounds behind a median.",
        epilog="\n".join(["parts:", *described]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        metavar="PART",
        action="append",
        choices=[*PARTS, *SETS],
        help="measure this part only; may be given again for more (default: all)",
    )
    return parser.parse_args()


def main() -> None:
    """Run the selected parts."""
    asked = _arguments().only or list(PARTS)
    wanted = {part for name in asked for part in SETS.get(name, (name,))}
    _use_class_archive()
    for name, measure in PARTS.items():
        if name in wanted:
            for figure in measure():
                figure.print()


def _use_class_archive() -> None:
    """Write the archive of Spark's classes first: a worker's own writer takes a minute of CPU time
    beside the first measurements.
    """
    archive = archive_path()
    if archive is None:
        return
    writer = start_writing(archive)
    if writer is not None:
        writer.wait(_ARCHIVE_TIMEOUT_S)
    use_archive(os.environ, archive)


if __name__ == "__main__":
    main()
