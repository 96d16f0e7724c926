"""promtool accepts the shipped rules, and each alert fires in the situation that it names."""

import subprocess

import pytest

from tests.support.debian import program
from tests.support.prometheus import OBSERVABILITY, PACKAGE


@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("check", "config", "prometheus-compose.yml"),
        ("test", "rules", "alerts.test.yml"),
    ],
    ids=" ".join,
)
def test_prometheus_takes_our_files(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(program("promtool", PACKAGE)), *command],
        cwd=OBSERVABILITY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
