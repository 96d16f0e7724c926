"""The JVM that pyspark calls: it ends with the process that started it, however that ends."""

import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pyspark.find_spark_home import _find_spark_home
from pyspark.serializers import UTF8Deserializer, read_int

from drover.python_process import python_command
from drover_worker.engine.process_constants import ExitCode

_TIMEOUT_S = 120.0
_POLL_S = 0.02


class EngineStartError(Exception):
    """The engine cannot start; the message is one line for operators."""

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Gateway:
    """A JVM, and the file to which it writes its port and secret."""

    jvm: "subprocess.Popen[bytes]"
    info: Path

    def wait(self, stop: threading.Event, timeout_s: float = _TIMEOUT_S) -> bool:
        """Wait until the JVM serves; False when ``stop`` was set first. An error kills the JVM.

        Raises:
            EngineStartError: The JVM ended, or does not serve in time.
        """
        try:
            return self._serves(stop, timeout_s)
        except BaseException:
            self.jvm.kill()
            raise

    def _serves(self, stop: threading.Event, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.info.exists():
            code = self.jvm.poll()
            if code is not None:
                raise EngineStartError(
                    ExitCode.SPARK_NOT_STARTED,
                    f"Spark's JVM ended with exit code {code} while it was starting: see its "
                    "output above in the log, and check DROVER_SPARK_CONF",
                )
            if time.monotonic() >= deadline:
                raise EngineStartError(
                    ExitCode.SPARK_NOT_STARTED,
                    f"Spark's JVM did not start within {timeout_s:.0f} s",
                )
            if stop.wait(_POLL_S):
                return False
        return True

    def use(self) -> None:
        """Let sessions of this process use the JVM, which serves."""
        with self.info.open("rb") as stream:
            os.environ["PYSPARK_GATEWAY_PORT"] = str(read_int(stream))  # type: ignore[no-untyped-call]
            os.environ["PYSPARK_GATEWAY_SECRET"] = UTF8Deserializer().loads(stream)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Let the JVM end: it does when its standard input closes."""
        if self.jvm.stdin is not None:
            self.jvm.stdin.close()


def start_gateway(
    conf: Mapping[str, str],
    directory: Path,
    environment: Mapping[str, str],
    output: IO[bytes] | None = None,
) -> Gateway:
    """Start the JVM with a parent-death signal. Call from the main thread: it ends with it.

    Args:
        conf: Spark's settings.
        directory: For the file with the settings, which may contain credentials: command lines are
            public.
        environment: The variables of the JVM.
        output: Receives what the JVM writes; by default it has the output of this process.
    """
    properties = directory / "spark.properties"
    properties.write_text("".join(f"{k}={_escape_property(v)}\n" for k, v in conf.items()))
    info = directory / f"gateway-{secrets.token_hex(8)}"
    command = [
        *python_command("drover_worker.engine.bound_exec", str(os.getpid())),
        str(Path(_find_spark_home()) / "bin" / "spark-submit"),
        *("--properties-file", str(properties), "pyspark-shell"),
    ]
    variables = {**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)}
    jvm = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=variables
    )
    return Gateway(jvm, info)


def cause_of(error: Exception) -> str:
    """The Java error in one line; py4j puts the name of the call first, then a colon."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line and not line.startswith("An error occurred while")]
    return causes[0].removeprefix(":").strip() if causes else type(error).__name__


def _escape_property(value: str) -> str:
    """The value escaped for a Java properties file."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "\\" + escaped if escaped.startswith((" ", "\t")) else escaped
