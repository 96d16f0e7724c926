"""A standalone Spark cluster on loopback whose processes know nothing of Drover.

They have an empty environment and other working directories, so executors have only Spark and
Python.
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psutil
from pyspark.find_spark_home import _find_spark_home

from drover.local.java_check import find_java
from drover_worker.engine.spark_protection import SECRET, protection
from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.spark_processes import executors_below, packed_executors, process_apart

#: In the log of a master that serves, also after its restart.
_IS_MASTER = "I have been elected leader"
_IS_REGISTERED = "Successfully registered with master"
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkCluster:
    """A master, and workers of so many cores each; stop it with ``close``."""

    def __init__(self, directory: Path, *, secret: str, workers: int = 2, cores: int = 1) -> None:
        master_port, master_ui = free_ports(2)
        self.master_url = f"spark://{HOST}:{master_port}"
        self._secret = secret
        directory.mkdir(parents=True, exist_ok=True)
        #: Where the workers put the files of executors.
        self.work = directory / "work"
        settings = directory / "spark.properties"
        values = protection(self.master_url, {SECRET: secret}) | {
            SECRET: secret,
            "spark.master.rest.enabled": "false",
            # a restarted master keeps the executors of running applications
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(directory / "recovery"),
        }
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        common = ("--properties-file", str(settings), "--host", HOST)
        self.master = self._process(
            directory / "master",
            "org.apache.spark.deploy.master.Master",
            *common,
            *("--port", str(master_port), "--webui-port", str(master_ui)),
        )
        ports = map(str, free_ports(2 * workers))
        self.workers = [
            self._process(
                directory / f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *common,
                *("--cores", str(cores), "--memory", "2g"),
                *("--work-dir", str(self.work / str(number))),
                *("--port", next(ports), "--webui-port", next(ports), self.master_url),
            )
            for number in range(workers)
        ]

    def _process(self, directory: Path, spark_class: str, *arguments: str) -> ChildProcess:
        program = str(Path(_find_spark_home()) / "bin" / "spark-class")
        environment = {
            "SPARK_CONF_DIR": str(directory),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
        }
        made = process_apart(
            directory,
            [program, spark_class, *arguments],
            java=find_java().path,
            environment=environment,
        )
        (directory / "log4j2.properties").write_text(_LOG4J)
        return made

    def start(self) -> None:
        """Start all processes."""
        self.start_master()
        for worker in self.workers:
            self.start_worker(worker)

    def start_master(self) -> None:
        """Start the master, and wait until it serves."""
        seen = self.master.log().count(_IS_MASTER)
        self.master.start(ready=lambda: self.master.log().count(_IS_MASTER) > seen)

    def start_worker(self, worker: ChildProcess) -> None:
        """Start a worker, and wait until the master has it."""
        seen = worker.log().count(_IS_REGISTERED)
        worker.start(ready=lambda: worker.log().count(_IS_REGISTERED) > seen)

    def engine_conf(self, archive: Path) -> dict[str, str]:
        """The Spark settings of an engine whose executors here have only this archive."""
        return {**packed_executors(archive), SECRET: self._secret}

    @property
    def services(self) -> Mapping[str, tuple[ChildProcess, Callable[[], None]]]:
        """Its processes, and what starts each."""
        workers = {
            worker.name: (worker, partial(self.start_worker, worker)) for worker in self.workers
        }
        return {**workers, "master": (self.master, self.start_master)}

    def executors(self) -> list[psutil.Process]:
        """The executors of the workers."""
        alive = [psutil.Process(each.pid) for each in self.workers if each.is_alive]
        return [executor for each in alive for executor in executors_below(each)]

    def close(self) -> None:
        """Kill everything, and remove the unpacked archives, which are large."""
        executors = self.executors()
        for process in (self.master, *self.workers):
            process.kill()
        for executor in executors:
            executor.kill()
            executor.wait()
        shutil.rmtree(self.work, ignore_errors=True)
