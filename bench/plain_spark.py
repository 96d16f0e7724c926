"""The peer of the file copy: plain Spark jobs in a warm session that copy the same file.

``python -m bench.plain_spark INPUT OUTPUT ROUNDS`` prints the seconds of each round as JSON.
"""

import json
import os
import shutil
import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    """Run timed copies after a warm-up round."""
    source, target, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    seconds = []
    for _ in range(rounds + 1):
        shutil.rmtree(target, ignore_errors=True)
        started = time.perf_counter()
        spark.read.text(source).write.text(target)
        seconds.append(time.perf_counter() - started)
    sys.stdout.write(json.dumps(seconds[1:]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
