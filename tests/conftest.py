"""What all tests share: none fails because a machine is slow, and faults run when asked for."""

import os
import subprocess
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.class_archive import archive_path, start_writing, use_archive

settings.register_profile(
    "unhurried",
    settings(),
    deadline=None,
    # a property without a number of its own has examples beside it, and each run draws others
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

#: What the tests marked `faults` are about: `make test-faults ONLY=…`.
SUBJECTS = (
    *("herder", "kafka", "coordinator", "engine", "connectors", "clients"),
    *("cluster", "mysql"),
)
#: Which run only when they are asked for by name, as they need what is not everywhere: a Docker
#: engine, `make test-cluster`; a server that no stable release of Debian has, `make test-mysql`.
BY_NAME = ("cluster", "mysql")


#: Writing the archive takes the CPU that five sessions save.
_ARCHIVE_PAYS_FROM_TESTS = 100

_HERE = Path(__file__).parent
_DEPTH = len(_HERE.parts)
#: What takes long comes first, so that no process is left with it at the end.
_ORDER = ("cluster", "kafka", "spark", "contract", "e2e", "simulation", "property", "integration")
_RANKS = {name: rank - len(_ORDER) for rank, name in enumerate(_ORDER)}


def pytest_addoption(parser: pytest.Parser) -> None:
    """With ``--faults`` the tests of faults run, else all others."""
    parser.addoption(
        "--faults",
        nargs="?",
        const="all",
        choices=("all", *SUBJECTS),
        help="run the tests marked faults: all but those that go by name, or those of one subject",
    )


@pytest.hookimpl(wrapper=True)  # before and after pytest-xdist looks for groups
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Deselect the tests of faults, or all others; and share the rest out among processes."""
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
    """Have Spark's JVMs use an archive of classes, and write it where many of them will start."""
    with_spark = sum(group_of(item) in ("kafka", "cluster", "spark") for item in items)
    if with_spark < _ARCHIVE_PAYS_FROM_TESTS or (archive := archive_path()) is None:
        return
    use_archive(os.environ, archive)
    if getattr(config, "workerinput", {"workerid": "gw0"})["workerid"] == "gw0":
        writer = start_writing(archive)
        if writer is not None:
            config.add_cleanup(partial(end, writer))


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process that may have ended."""
    process.kill()
    process.wait()


def group_of(item: pytest.Item) -> str | None:
    """Which tests run in the same process as this one, since they share what starts slowly."""
    if own := item.get_closest_marker("xdist_group"):
        return str(own.args[0])
    if item.get_closest_marker("kafka") or item.path.is_relative_to(_HERE / "kafka"):
        return "kafka"
    if "shared" in getattr(item, "fixturenames", ()):
        return "cluster"
    if item.path.is_relative_to(_HERE / "spark"):
        return "spark"
    return None


def _rank(item: pytest.Item) -> int:
    return _RANKS.get(group_of(item) or "", _RANKS.get(item.path.parts[_DEPTH], 0))


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of faults, or all others."""
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
    """What a test of faults is about; None for any other test."""
    marker = item.get_closest_marker("faults")
    if marker is None:
        return None
    subject = marker.args[0] if len(marker.args) == 1 else None
    if subject not in SUBJECTS:
        raise pytest.UsageError(
            f"{item.nodeid}: the marker faults takes one subject of {', '.join(SUBJECTS)}"
        )
    return str(subject)
