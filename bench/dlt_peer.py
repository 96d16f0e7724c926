"""Copies a PostgreSQL table to Parquet with dlt; runs in the environment that has dlt.

Prints JSON: the seconds of ``pipeline.run``, and the number of rows in the files.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any


def copy(url: str, table: str, target: Path) -> dict[str, Any]:
    """Copy with dlt's fastest backend for this job."""
    dlt = importlib.import_module("dlt")
    sql_database = importlib.import_module("dlt.sources.sql_database")
    parquet = importlib.import_module("pyarrow.parquet")
    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.filesystem(bucket_url=target.as_uri()),
        dataset_name="bench",
        pipelines_dir=str(target / "state"),
    )
    rows = sql_database.sql_table(credentials=url, table=table, schema="public", backend="pyarrow")
    started_s = time.monotonic()
    pipeline.run(rows, loader_file_format="parquet")
    taken_s = time.monotonic() - started_s
    files = (target / "bench" / table).rglob("*.parquet")
    return {"run_s": taken_s, "rows": sum(parquet.read_metadata(each).num_rows for each in files)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(copy(sys.argv[1], sys.argv[2], Path(sys.argv[3]))) + "\n")
