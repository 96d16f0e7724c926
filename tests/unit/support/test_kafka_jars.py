"""Kafka's jars are fetched once, completely or not at all; the tools are fakes."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.kafka.debezium import find_debezium
from tests.support.kafka.jars import find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.kafka.properties import write_properties
from tests.support.waiting import wait_until

WAIT_S = 60

JAVA = """#!/bin/sh
case "$1" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *) echo jdk.incubator.vector@17 ;;
esac
"""
#: Takes its output directory from an argument, as mvn does.
MVN = """#!/bin/sh
for each in "$@"; do case "$each" in -DoutputDirectory=*) out="${each#*=}" ;; esac; done
mkdir -p "$out" || exit 9
"""
FETCHES = MVN + 'echo jar > "$out/kafka-clients-9.8.7.jar"\n'
FETCHES_PLUGINS = f"{MVN}d=$out/debezium-connector-x\nmkdir -p $d\necho jar > $d/x.jar\n"
BREAKS_OFF = FETCHES + "echo '[ERROR] the network is gone'\nexit 1\n"


class Machine:
    """A directory of programs, a pom, and a cache."""

    def __init__(self, directory: Path) -> None:
        self._bin = directory / "bin"
        self._bin.mkdir()
        for name in ("sh", "mkdir"):
            (self._bin / name).symlink_to(Path("/bin") / name)
        self.cache = directory / "cache"
        self.pom = directory / "pom.xml"
        self.pom.write_text("<kafka.version>9.8.7</kafka.version>\n")

    def install(self, name: str, script: str) -> None:
        (self._bin / name).write_text(script)
        (self._bin / name).chmod(0o755)

    def remove(self, name: str) -> None:
        (self._bin / name).unlink()

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": str(self._bin)}

    def find(self) -> Path:
        return find_jars(self.environ, cache=self.cache, pom=self.pom).directory

    def refusal(self) -> str:
        with pytest.raises(KafkaMissingError) as caught:
            self.find()
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.install("java", JAVA)
    return machine


def test_jars_are_fetched_once(machine: Machine) -> None:
    machine.install("mvn", FETCHES)
    first = machine.find()
    machine.remove("mvn")

    assert machine.find() == first
    assert first.name.startswith("9.8.7-")
    assert [path.name for path in first.iterdir()] == ["kafka-clients-9.8.7.jar"]
    assert list(machine.cache.iterdir()) == [first]


def test_a_download_that_breaks_off_does_not_count(machine: Machine) -> None:
    machine.install("mvn", BREAKS_OFF)

    assert machine.refusal().endswith("[ERROR] the network is gone")
    assert list(machine.cache.iterdir()) == []
    machine.install("mvn", FETCHES)
    assert machine.find().is_dir()


def test_of_two_that_want_them_at_once_one_fetches_and_the_other_waits(
    machine: Machine, tmp_path: Path
) -> None:
    entered, fetched = tmp_path / "entered", tmp_path / "fetched"
    os.mkfifo(entered)
    machine.install("mvn", f"{FETCHES}echo once >> {fetched}\nread go < {entered}\n")
    with ThreadPoolExecutor() as both:
        found = [both.submit(machine.find) for _ in range(2)]
        wait_until(fetched.exists)
        entered.write_text("go on\n")  # only one process reads the pipe; a second one would block
        directories = {each.result(WAIT_S) for each in found}

    assert len(directories) == 1
    assert fetched.read_text() == "once\n"
    assert list(machine.cache.iterdir()) == [*directories]


def test_without_maven_a_line_says_what_to_install(machine: Machine) -> None:
    assert machine.refusal().startswith("no mvn found in PATH")


def test_plugins_are_fetched_as_the_jars_are_and_only_whole(machine: Machine) -> None:
    machine.install("mvn", FETCHES)
    with pytest.raises(KafkaMissingError, match="mvn could not fetch Debezium's connectors"):
        find_debezium(machine.environ, cache=machine.cache)
    machine.install("mvn", FETCHES_PLUGINS)
    found = find_debezium(machine.environ, cache=machine.cache)
    machine.remove("mvn")

    assert found == find_debezium(machine.environ, cache=machine.cache)
    assert list(machine.cache.iterdir()) == [found.directory]
    assert [path.name for path in found.directory.rglob("*.jar")] == ["x.jar"]
    assert found.worker_settings == {"plugin.path": str(found.directory)}


def test_properties_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"

    write_properties(path, {"a.b": " x=1", "path": "c:\\d\n", "name": "é"})

    lines = path.read_text().splitlines()
    assert lines == ["a.b=\\ x\\=1", "path=c\\:\\\\d\\n", "name=\\u00e9"]
