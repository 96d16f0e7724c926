"""CPU time of the measured processes, by kind of process."""

import subprocess
import sys

import pytest

from bench.cpu_time import CpuTimes, kind_of
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("java -cp x kafka.Kafka server.properties", "broker"),
        ("java org.apache.kafka.connect.cli.ConnectDistributed x", "Kafka Connect"),
        ("java org.apache.spark.deploy.SparkSubmit pyspark-shell", "Spark's JVM"),
        ("java -Xmx512m io.drover.host.Main serve /tmp/jh-1/socket", "Java plugins"),
        ("python -m drover_worker.engine.python_daemon pyspark.worker", "Python workers"),
        ("python -m drover_worker.engine", "engine"),
        ("python -m drover_worker", "herder"),
        ("python -m drover_coordinator", "other services"),
        ("/usr/lib/postgresql/15/bin/postgres -D /tmp/data", "PostgreSQL"),
        ("postgres: drover test_1 127.0.0.1(40000) COPY", "PostgreSQL"),
        ("sleep 1", "other"),
    ],
)
def test_processes_are_told_apart(command: str, kind: str) -> None:
    assert kind_of(command) == kind


def test_what_a_child_takes_is_counted() -> None:
    times = CpuTimes()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        wait_until(lambda: times.by_kind().get("other", 0) > 0.05, describe="the child has run")
    finally:
        busy.kill()
        busy.wait()


def test_what_ended_is_counted_for_its_parent() -> None:
    """A server that forks a process for each connection needs this."""
    busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])\n"
    times = CpuTimes()
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{script}print('ended', flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        assert parent.stdout.readline() == b"ended\n"
        assert times.by_kind()["other"] >= 0.2
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
