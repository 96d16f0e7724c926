"""Reads with Kafka's own Java consumer: counts that do not depend on our client."""

import subprocess
from pathlib import Path

from tests.support.kafka.jars import KafkaJars

_PROGRAM = Path(__file__).parent / "ReadCommitted.java"
_TIMEOUT_S = 120


def read_committed(jars: KafkaJars, bootstrap: str, topic: str, partition: int = 0) -> list[str]:
    """The values of a partition's committed records, as lines of text."""
    command = jars.command(str(_PROGRAM), bootstrap, topic, str(partition), heap_mib=256)
    ended = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-3_000:]
    return ended.stdout.decode().splitlines()
