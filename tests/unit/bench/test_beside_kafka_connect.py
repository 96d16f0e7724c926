"""The comparison with Kafka Connect: when a file counts as copied, a connector as RUNNING."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import connectors, kafka_connectors, kafka_copy, kafka_latency, kafka_sides, small_tasks
from bench.kafka_connectors import connectors_a_second
from bench.kafka_copy import TEXT, copied
from tests.support.kafka.missing import KafkaMissingError


class StandIn:
    """Copies a file at once, with other bytes if ``spoilt``; one connector starts late."""

    name = "stand-in"

    def __init__(self, *, spoilt: bool = False, refused: str = "") -> None:
        self.configs: dict[str, Mapping[str, str]] = {}
        self.looks = 0
        self._spoilt = spoilt
        self._refused = refused

    async def create(self, name: str, config: Mapping[str, str]) -> None:
        if name == self._refused:
            raise ConnectionError(f"no {name}")
        self.configs[name] = config
        sink = self.configs.get(name.replace("-source", "-sink"))
        if name.endswith("-source") and sink:
            data = Path(config["file"]).read_bytes()
            Path(sink["file"]).write_bytes(data.swapcase() if self._spoilt else data)

    async def delete(self, name: str) -> None:
        del self.configs[name]

    async def running_count(self) -> int:
        self.looks += 1
        return len(self.configs) - (self.looks < 3)


async def test_a_copy_is_measured_and_its_connectors_are_removed(tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    side = StandIn()
    seconds, _ = await copied(side, TEXT, source, {"flow": target})
    assert seconds > 0
    assert side.configs == {}


async def test_a_copy_of_other_bytes_is_none(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    with pytest.raises(AssertionError, match=r"stand-in made another file of .*in\.txt"):
        await copied(StandIn(spoilt=True), TEXT, source, {"flow": tmp_path / "out.txt"})


async def test_connectors_are_counted_once_all_of_them_run(tmp_path: Path) -> None:
    side = StandIn()
    assert await connectors_a_second(side, tmp_path / "empty.txt", 20) > 0
    assert len(side.configs) == 20
    assert side.looks == 3


async def test_a_connector_that_is_refused_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await connectors_a_second(StandIn(refused="idle-0003"), tmp_path / "empty.txt", 20)
    assert caught.value.subgroup(ConnectionError)


@pytest.mark.parametrize(
    "part",
    [kafka_copy, kafka_connectors, kafka_latency, small_tasks, connectors],
)
def test_without_kafka_a_part_says_so_in_one_line(
    part: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_none() -> None:
        raise KafkaMissingError("no mvn found in PATH")

    monkeypatch.setattr(kafka_sides, "find_jars", find_none)
    assert list(part.figures()) == []  # type: ignore[attr-defined]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err in (
        "kafka-copy is skipped: no mvn found in PATH\n",
        "kafka-connectors is skipped: no mvn found in PATH\n",
        "kafka-latency is skipped: no mvn found in PATH\n",
        "kafka-small-tasks is skipped: no mvn found in PATH\n",
        "databases is skipped: no mvn found in PATH\n",
    )
