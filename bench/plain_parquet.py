"""A topic of JSON with schemas into Parquet, as a plain loop does it; prints its seconds."""

import json
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
from confluent_kafka import Consumer

_BATCH = 50_000


def copy(bootstrap: str, topic: str, target: Path, record_count: int) -> float:
    """Each file has up to 50,000 records, whose offsets are committed once it is written."""
    started_s = time.monotonic()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"plain-{target.name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    written = 0
    while written < record_count:
        rows: list[dict[str, object]] = []
        wanted = min(_BATCH, record_count - written)
        while len(rows) < wanted:
            messages = consumer.consume(min(10_000, wanted - len(rows)), timeout=1)
            rows += [json.loads(each.value() or b"")["payload"] for each in messages]
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, target / f"{written}.parquet")
        written += len(rows)
        consumer.commit(asynchronous=False)
    taken_s = time.monotonic() - started_s
    consumer.close()
    return taken_s


if __name__ == "__main__":
    sys.stdout.write(f"{copy(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))}\n")
