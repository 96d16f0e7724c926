"""When any process of the tree is killed, all end: user code never outlives its herder.

Each test starts a real engine whose Python workers run endless user code outside the process group,
kills one process with SIGKILL, and waits until no process of the tree is left.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from drover_worker.engine import process_tree
from drover_worker.engine.process_constants import TREE_VARIABLE
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

FAULTS = pytest.mark.faults("engine")


@dataclass
class Tree:
    """A running herder and its descendants."""

    herder: "subprocess.Popen[bytes]"
    guard: int
    mark: str
    directory: Path

    @property
    def processes(self) -> set[int]:
        """The processes with the mark, without zombies."""
        found = set()
        for each in process_tree.marked(TREE_VARIABLE, self.mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(each).status() != psutil.STATUS_ZOMBIE:
                    found.add(each)
        return found

    def find(self, text: str) -> int:
        """The topmost process with ``text`` in its command line."""
        found = {}
        for each in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(each)
                if text in " ".join(process.cmdline()):
                    found[each] = process.ppid()
        tops = [each for each, parent in found.items() if parent not in found]
        assert len(tops) == 1, found
        return tops[0]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    root = Path(__file__).parents[2]
    herder = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.engine_herder", str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert herder.stdout is not None
    told = json.loads(herder.stdout.readline())
    running = Tree(herder, told["guard"], told["tree"], Path(told["directory"]))
    # guard, engine, JVM, daemon, two workers
    wait_until(lambda: len(running.processes) >= 6, describe=lambda: running.processes)
    yield running
    herder.kill()
    herder.wait()
    herder.stdout.close()
    process_tree.kill_marked(TREE_VARIABLE, running.mark, 10)


def _wait_for_end(tree: Tree) -> None:
    wait_until(
        lambda: not tree.processes,
        describe=lambda: {
            each: psutil.Process(each).cmdline()[:4]
            for each in tree.processes
            if psutil.pid_exists(each)
        },
    )


def test_nothing_outlives_a_killed_herder(tree: Tree) -> None:
    tree.herder.kill()
    _wait_for_end(tree)
    wait_until(lambda: not tree.directory.exists(), describe="temporary files are gone")


@FAULTS
def test_nothing_outlives_a_killed_engine(tree: Tree) -> None:
    os.kill(tree.find("drover_worker.engine.process"), signal.SIGKILL)
    _wait_for_end(tree)


@FAULTS
def test_nothing_outlives_a_killed_guard(tree: Tree) -> None:
    os.kill(tree.guard, signal.SIGKILL)
    _wait_for_end(tree)


@FAULTS
def test_nothing_outlives_a_killed_jvm(tree: Tree) -> None:
    os.kill(tree.find("org.apache.spark.deploy.SparkSubmit"), signal.SIGKILL)
    _wait_for_end(tree)


@FAULTS
def test_nothing_outlives_herder_and_guard_killed_at_once(tree: Tree) -> None:
    # stopped first, so neither can react to the end of the other
    for each in (tree.herder.pid, tree.guard):
        os.kill(each, signal.SIGSTOP)
    for each in (tree.guard, tree.herder.pid):
        os.kill(each, signal.SIGKILL)
    _wait_for_end(tree)


@FAULTS
def test_a_stopped_guard_does_not_keep_the_engine_of_a_killed_herder(tree: Tree) -> None:
    os.kill(tree.guard, signal.SIGSTOP)
    tree.herder.kill()
    wait_until(
        lambda: tree.processes <= {tree.guard},
        describe="the end of the engine at the end of its input",
    )
    os.kill(tree.guard, signal.SIGCONT)
    _wait_for_end(tree)
