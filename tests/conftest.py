"""Pytest options and hooks: no deadlines for slow machines, and fault tests only on request."""

import os
import subprocess
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.class_archive import (
    archive_path,
    start_writing,
    use_archive,
    use_no_archive,
)

settings.register_profile(
    "unhurried",
    settings(),
    deadline=None,
    # properties without an explicit count also have example tests, and each run draws new data
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

#: Subjects of the tests marked `faults`: `make test-faults ONLY=…`.
SUBJECTS = (
    *("herder", "kafka", "coordinator", "engine", "connectors", "clients"),
    *("security", "gateway", "console", "spark"),
    *("cluster", "mysql"),
)
#: Subjects that run only when selected by name, because of their requirements: a Docker engine
#: (`make test-cluster`), or a server that no stable Debian release has (`make test-mysql`).
BY_NAME = ("cluster", "mysql")


#: Writing the archive costs as much CPU time as it saves for five sessions.
_ARCHIVE_PAYS_FROM_TESTS = 100

_HERE = Path(__file__).parent
# engines load connectors of tests, and the working directory is not on their import path
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(_HERE.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))])
)
_DEPTH = len(_HERE.parts)
#: Long tests run first, so the processes finish at about the same time.
_ORDER = (
    *("cluster", "secure", "kafka", "spark", "contract", "e2e", "simulation", "property"),
    "integration",
)
_RANKS = {name: rank - len(_ORDER) for rank, name in enumerate(_ORDER)}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--faults``, which runs only the fault tests; without it all other tests run."""
    parser.addoption(
        "--faults",
        nargs="?",
        const="all",
        choices=("all", *SUBJECTS),
        help="run the tests marked faults: one subject, or all except those selected by name",
    )


@pytest.hookimpl(wrapper=True)  # adds marks before pytest-xdist reads groups, sorts after it
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Select the fault tests or all others, and distribute them among processes."""
    select(config, items)
    share_spark_classes(config, items)
    for item in items:
        group = group_of(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    yield
    if hasattr(config, "workerinput"):
        lost = [each.nodeid for each in items if "@" not in each.nodeid and group_of(each)]
        assert not lost, f"pytest-xdist did not group these tests: {lost[:3]}"
        items.sort(key=_rank)


def share_spark_classes(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let Spark's JVMs use a class archive, and write it if many JVMs will start."""
    with_spark = sum(group_of(item) in ("kafka", "cluster", "secure", "spark") for item in items)
    if with_spark < _ARCHIVE_PAYS_FROM_TESTS or (archive := archive_path()) is None:
        use_no_archive(os.environ)
        return
    use_archive(os.environ, archive)
    if getattr(config, "workerinput", {"workerid": "gw0"})["workerid"] == "gw0":
        writer = start_writing(archive)
        if writer is not None:
            config.add_cleanup(partial(end, writer))


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process, which may have ended, and wait for it."""
    process.kill()
    process.wait()


def group_of(item: pytest.Item) -> str | None:
    """The group of tests that run in one process because they share a slow start."""
    if own := item.get_closest_marker("xdist_group"):
        return str(own.args[0])
    if item.get_closest_marker("kafka") or item.path.is_relative_to(_HERE / "kafka"):
        return "kafka"
    if "shared" in getattr(item, "fixturenames", ()):
        return "cluster"
    if "secure" in getattr(item, "fixturenames", ()):
        return "secure"
    if item.path.is_relative_to(_HERE / "spark"):
        return "spark"
    return None


def _rank(item: pytest.Item) -> int:
    return _RANKS.get(group_of(item) or "", _RANKS.get(item.path.parts[_DEPTH], 0))


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the fault tests, or all others."""
    asked: str | None = config.getoption("--faults")
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        subject = subject_of(item)
        wanted = subject is None if asked is None else subject is not None
        if wanted and asked is not None:
            wanted = subject not in BY_NAME if asked == "all" else subject == asked
        (chosen if wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def subject_of(item: pytest.Item) -> str | None:
    """The subject of a fault test; None for any other test."""
    marker = item.get_closest_marker("faults")
    if marker is None:
        return None
    subject = marker.args[0] if len(marker.args) == 1 else None
    if subject not in SUBJECTS:
        raise pytest.UsageError(
            f"{item.nodeid}: the marker faults takes one subject of {', '.join(SUBJECTS)}"
        )
    return str(subject)
