"""Writes a missing archive of Spark's classes beside a worker that runs."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

import structlog

from drover.python_process import python_command, python_environment
from drover_worker.engine.settings import NO_CLASS_ARCHIVES, EngineSettings

#: Time for the first tasks of a started engine.
_DELAY_S = 20.0
#: A machine without idle time for so long gets its archive after another start.
_LIMIT_S = 1_800.0

_log = structlog.get_logger("drover.worker")


class ClassArchiveWriter:
    """Starts the program that writes the archive, once an engine runs; ends it with the worker."""

    def __init__(self, settings: EngineSettings, delay_s: float = _DELAY_S) -> None:
        self._settings = settings
        self._delay_s = delay_s
        self._task: asyncio.Task[None] | None = None

    def engine_started(self) -> None:
        """An engine runs: write the archive, once in the worker's life."""
        if self._task is None and self._settings.class_archives != NO_CLASS_ARCHIVES:
            self._task = asyncio.create_task(self._write(), name="archive of classes")

    async def close(self) -> None:
        """Kill the program, if it runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self) -> None:
        await asyncio.sleep(self._delay_s)
        settings = self._settings
        conf = {**settings.spark_conf, "spark.master": settings.spark_master}
        try:
            await self._run(settings.class_archives, conf)
        except (OSError, TimeoutError) as error:
            _log.info("no archive of Spark's classes was written", reason=str(error) or "timeout")

    async def _run(self, folder: str, conf: Mapping[str, str]) -> None:
        program = python_command("drover_worker.engine.class_archive", folder, "--idle")
        # it dies with this process, and its JVM with it
        process = await asyncio.create_subprocess_exec(
            *python_command("drover_worker.engine.bound_exec", str(os.getpid())),
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=python_environment(os.environ),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                _, errors = await process.communicate(json.dumps(conf).encode())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            _log.warning(
                "no archive of Spark's classes was written",
                reason=lines[-1][:500] if lines else f"exit code {process.returncode}",
            )
