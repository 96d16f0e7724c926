"""YARN on loopback: a resource manager and a node, whose processes know nothing of Drover."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pyspark

from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.maven import Wanted, java_and_jars, version_in
from tests.support.repository import REPOSITORY
from tests.support.spark_processes import executors_below, packed_executors, process_apart

_POM = Path(__file__).with_name("hadoop_pom.xml")
_CACHE = REPOSITORY / ".hadoop"
_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_IS_MANAGER = "Transitioned to active state"
_IS_REGISTERED = "Registered with ResourceManager as"
_LOG4J = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""
_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class YarnCluster:
    """A resource manager, and a node with two cores; stop it with ``close``.

    Raises JarsMissingError without Java, or without a way to the jars.
    """

    def __init__(self, directory: Path) -> None:
        version = version_in(_POM, "hadoop.version")
        wanted = Wanted("Hadoop", "copy-dependencies", _POM, "hadoop-client-minicluster-*.jar")
        self._java, self._jars = java_and_jars(wanted, version, cache=_CACHE)
        #: Where the node has the files of containers.
        self.work = directory / "work"
        #: What applications read: HADOOP_CONF_DIR.
        self.conf = directory / "conf"
        self.conf.mkdir(parents=True)
        ports = [f"{HOST}:{each}" for each in free_ports(8)]
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        addresses = {
            **{
                f"yarn.resourcemanager.{name}": port
                for name, port in zip(names, ports, strict=False)
            },
            "yarn.resourcemanager.webapp.address": ports[4],
            "yarn.nodemanager.address": ports[5],
            "yarn.nodemanager.localizer.address": ports[6],
            "yarn.nodemanager.webapp.address": ports[7],
        }
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{directory}/tmp"})
        self._write(
            "yarn-site",
            {
                **addresses,
                "yarn.resourcemanager.hostname": HOST,
                # a restarted manager keeps the applications and their containers
                "yarn.resourcemanager.recovery.enabled": "true",
                "yarn.resourcemanager.store.class": "org.apache.hadoop.yarn.server.resourcemanager"
                ".recovery.FileSystemRMStateStore",
                "yarn.resourcemanager.fs.state-store.uri": f"file://{directory}/state",
                "yarn.nodemanager.hostname": HOST,
                "yarn.nodemanager.local-dirs": str(self.work),
                "yarn.nodemanager.log-dirs": str(directory / "logs"),
                "yarn.nodemanager.resource.memory-mb": "4096",
                "yarn.nodemanager.resource.cpu-vcores": "2",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.nm.liveness-monitor.expiry-interval-ms": "20000",
            },
        )
        self._write(
            "capacity-scheduler",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
            },
        )
        (self.conf / "log4j.properties").write_text(_LOG4J)
        self.manager = self._process(directory, "manager", _MANAGER)
        self.node = self._process(directory, "node", _NODE)

    def _write(self, name: str, values: Mapping[str, str]) -> None:
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>\n"
            for name, value in values.items()
        )
        text = f"<configuration>\n{properties}</configuration>\n"
        (self.conf / f"{name}.xml").write_text(text)

    def _process(self, directory: Path, name: str, main: str) -> ChildProcess:
        return process_apart(
            directory / name,
            [str(self._java), *_JAVA_OPTIONS, "-cp", f"{self.conf}:{self._jars}/*", main],
            java=self._java,
            environment={"HADOOP_CONF_DIR": str(self.conf)},
        )

    def start(self) -> None:
        """Start both processes."""
        self.start_manager()
        self.start_node()

    def start_manager(self) -> None:
        """Start the resource manager, and wait until it serves."""
        seen = self.manager.log().count(_IS_MANAGER)
        self.manager.start(ready=lambda: self.manager.log().count(_IS_MANAGER) > seen)

    def start_node(self) -> None:
        """Start the node manager, and wait until the resource manager has it."""
        seen = self.node.log().count(_IS_REGISTERED)
        self.node.start(ready=lambda: self.node.log().count(_IS_REGISTERED) > seen)

    def engine_conf(self, archive: Path) -> dict[str, str]:
        """The Spark settings of an engine with one executor here, which has only this archive."""
        return {
            **packed_executors(archive),
            "spark.executor.instances": "1",
            "spark.yarn.am.memory": "256m",
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
            "spark.yarn.stagingDir": f"file://{archive.parent}",
        }

    @property
    def services(self) -> Mapping[str, tuple[ChildProcess, Callable[[], None]]]:
        """Its processes, and what starts each."""
        return {
            "node": (self.node, self.start_node),
            "manager": (self.manager, self.start_manager),
        }

    def executors(self) -> list[psutil.Process]:
        """The executors of the node."""
        return executors_below(psutil.Process(self.node.pid)) if self.node.is_alive else []

    def kill_node(self) -> None:
        """Kill the node with everything that runs on it, as if its machine lost power."""
        below = psutil.Process(self.node.pid).children(recursive=True) if self.node.is_alive else []
        self.node.kill()
        for each in below:
            if each.is_running():
                each.kill()

    def close(self) -> None:
        """Kill everything, and remove the unpacked archives, which are large."""
        self.manager.kill()
        self.kill_node()
        shutil.rmtree(self.work, ignore_errors=True)
