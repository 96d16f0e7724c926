"""Kills a connector's process: a child process runs the task on the test's Spark, and kills itself
with SIGKILL.
"""

import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from drover.dataplane.store import EmbeddedStore
from drover.dataplane.values import PublishResult, StagedBlob
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.python_process import python_command
from drover.testing.running import Hooks

if TYPE_CHECKING:
    from drover.testing.kit import ConnectorKit, KillPoint

_TIMEOUT_S = 300
_WORDS_SHOWN = 3_000


def killed(
    kit: "ConnectorKit",
    *,
    point: "KillPoint | None",
    before_line: str | None,
    after_batches: int,
) -> None:
    """See ``ConnectorKit.kill``."""
    context = kit.spark.sparkContext
    parameters = context._gateway.gateway_parameters  # type: ignore[union-attr]
    job = {
        "kit": type(kit),
        "class": kit.connector_class,
        "config": kit.config,
        "directory": kit.directory,
        "task": kit._number,
        "batch_records": kit._batch_records,
        "point": point,
        "before_line": before_line,
        "after_batches": after_batches,
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(each or "." for each in sys.path),
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
    }
    with tempfile.TemporaryDirectory(prefix="drover-kit-") as place:
        path = Path(place) / "job"
        path.write_bytes(cloudpickle.dumps(job))  # type: ignore[no-untyped-call]
        ended = subprocess.run(
            python_command("drover.testing.killing", str(path)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    # its Spark jobs end too, as when an engine is killed
    context.cancelAllJobs()
    if ended.returncode != -signal.SIGKILL:
        where = f"the line {before_line!r}" if before_line else str(point)
        raise AssertionError(
            f"the task ended with code {ended.returncode} before it reached {where}:\n"
            f"{ended.stderr[-_WORDS_SHOWN:]}"
        )


def _kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class _Killing(Hooks):
    """Kills the process at a point, after it is armed."""

    def __init__(self, point: "KillPoint | None") -> None:
        self._point = point
        self.armed = False

    def _at(self, point: str) -> None:
        if self.armed and self._point is not None and str(self._point) == point:
            _kill_self()

    def after_write(self) -> None:
        """See Hooks."""
        self._at("after write")

    def after_commit(self) -> None:
        """See Hooks."""
        self._at("after commit")


class _KillingStore(EmbeddedStore):
    """A store that kills a source's process at a point."""

    hooks: Hooks = Hooks()

    def publish(
        self,
        task: TaskId,
        claim: Term,
        staged: Any,
        committed: Sequence[CommittedOffset] = (),
    ) -> PublishResult:
        """See EmbeddedStore."""
        blobs: list[StagedBlob] = list(staged)
        if committed:
            self.hooks.after_write()
        result = super().publish(task, claim, blobs, committed)
        if committed:
            self.hooks.after_commit()
        return result


class _LineKiller:
    """A trace function that kills the process before a line of a file that contains a text."""

    def __init__(self, path: str, text: str) -> None:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        self._path = path
        self._numbers = {number for number, line in enumerate(lines, 1) if text in line}
        if not self._numbers:
            raise ValueError(f"no line of {path} contains {text!r}")

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "_LineKiller | None":
        """See sys.settrace."""
        del argument
        if frame.f_code.co_filename != self._path:
            return None
        if event == "line" and frame.f_lineno in self._numbers:
            _kill_self()
        return self


def _session() -> SparkSession:
    """A session on the JVM of the test process; its port is in the environment."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    java = jvm.JavaSparkContext.fromSparkContext(running)
    SparkContext(gateway=gateway, jsc=java)
    return SparkSession.builder.getOrCreate()


def _source_file(task_class: Any) -> str:
    """The file with the connector's own code."""
    found = getattr(task_class, "function", None)
    if found is None:
        found = getattr(task_class, "write", None) or task_class.poll
    return str(inspect.unwrap(found).__code__.co_filename)


def _run(job: dict[str, Any]) -> None:
    hooks = _Killing(job["point"])
    kit = job["kit"](
        job["class"],
        job["config"],
        spark=_session(),
        directory=job["directory"],
        task=job["task"],
    )
    kit.hooks = hooks
    kit._store.close()
    kit._store = _KillingStore(kit._store.path)
    kit._store.hooks = hooks
    run: Callable[..., None] = kit.run
    if job["after_batches"]:
        run(batches=job["after_batches"], batch_records=job["batch_records"])
    hooks.armed = True
    if job["before_line"] is not None:
        sys.settrace(_LineKiller(_source_file(job["class"].task_class), job["before_line"]))
    run(batch_records=job["batch_records"])


if __name__ == "__main__":
    _run(pickle.loads(Path(sys.argv[1]).read_bytes()))
