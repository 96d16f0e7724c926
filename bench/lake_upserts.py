"""Upserts into a table of Iceberg, by one and by several key columns."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure

ROW_COUNT = 60_000
#: Key columns, and the rows for each of them.
TABLES = (("a,b", ROW_COUNT), ("a,b,c", ROW_COUNT), ("a", 2 * ROW_COUNT))


def figures() -> Iterator[Figure]:
    """Seconds and memory of the second write of all keys of an Iceberg table, in one commit."""
    for columns, count in TABLES:
        run = subprocess.run(
            [sys.executable, "-m", "bench.lake_upserts", columns, str(count)],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds, megabytes = map(float, run.stdout.split())
        name = f"iceberg_upserts_{columns.replace(',', '')}"
        yield Figure(name, seconds, "s", limit="10 s")
        yield Figure(f"{name}_memory", megabytes, "MB", limit="1000 MB")


def measure(columns: str, count: int) -> tuple[float, float]:
    """Seconds of the second write, and the process's largest resident size in MB."""
    from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
    from drover.connectors.lakehouse.iceberg_table import IcebergWriter
    from tests.support.lake_records import records

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "name": "sink",
            "connector.class": "IcebergSink",
            "topics": "orders",
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"jdbc:sqlite:{folder}/catalogue.db",
            "iceberg.catalog.warehouse": f"file://{folder}/warehouse",
            "iceberg.tables": "app.orders",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": columns,
        }
        writer = IcebergWriter("sink", settings_of(IcebergSink.config_def().parse(config).values))
        took_s = 0.0
        for number in range(2):
            rows = [
                {"a": n // 250 if "b" in columns else n, "b": n % 250, "c": f"k{n}", "v": number}
                for n in range(count)
            ]
            batch = records(rows, first=number * count)
            start_s = time.monotonic()
            list(writer([batch]))
            took_s = time.monotonic() - start_s
    return took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.stdout.write(" ".join(f"{each:.2f}" for each in measure(sys.argv[1], int(sys.argv[2]))))
