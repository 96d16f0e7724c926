"""Java converters, transforms and predicates in connectors of Drover, on the real engine."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drover.connector import TopicPartition
from drover.connector.settings import validate_config
from drover.connectors.console_sink import ConsoleSink
from drover.connectors.files.files_source import FilesSource
from drover.connectors.files.lines.file_stream_source import FileStreamSource
from drover.connectors.java import step_finder
from drover.java_plugins import install
from drover.java_plugins.host import HOSTS
from drover.testing import SinkKit, SourceKit, TaskFailedError
from tests.support.compiled_plugins import compiled, jar, java_host, require_mvn
from tests.support.java_plugins import noted_owners
from tests.support.previews import previewed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

MakeSink = Callable[..., SinkKit]
MakeSource = Callable[..., SourceKit]
_SOURCES = Path(__file__).parents[2] / "support" / "java_sources"
NAMED = {
    "transforms": "name",
    "transforms.name.type": "org.acme.Steps$Named",
    "transforms.name.suffix": "-x",
}
TOLERANT = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "letters",
    "errors.deadletterqueue.context.headers.enable": "true",
}
DEBEZIUM = "io.debezium:debezium-connector-postgres:tar.gz:plugin:3.6.3.Final"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    java_host()
    folder = tmp_path_factory.mktemp("steps")
    source = (_SOURCES / "Steps.java").read_text()
    classes = compiled(folder / "build", {"org.acme.Steps": source})
    for version in ("1.0", "1.1"):
        path = jar(folder / f"steps-{version}.jar", classes, text=version)
        install.add(str(path), folder / "home", host=None)
    yield folder / "home"
    HOSTS.stop()


@pytest.fixture(autouse=True)
def java_steps(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DROVER_PLUGIN_HOME", str(home))
    step_finder.use_java_steps(in_engine=True)
    yield
    step_finder.use_no_java_steps()


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(f"{each}\n" for each in texts))
    return path


def test_a_native_source_runs_java_transforms_and_predicates(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    file = lines(tmp_path / "in", "one", "n1", "drop", "three", "bad", "deep", "n2")
    config = {
        **NAMED,
        **TOLERANT,
        "transforms": "mask,name",
        "transforms.mask.type": "RegexRouter",
        "transforms.mask.regex": "lines",
        "transforms.mask.replacement": "routed",
        "transforms.name.predicate": "n",
        "transforms.name.negate": "true",
        "predicates": "n",
        "predicates.n.type": "java:org.acme.Steps$StartsWithN",
        "value.converter": "JsonConverter",
    }
    kit = source_kit(FileStreamSource, config, file=file, topic="lines")
    kit.run(until=lambda: len(kit.records("letters")) >= 2)
    made = kit.records("routed-x")
    # the schema changes with every record
    values = [each.value for each in made]
    assert [_payload(each) for each in values] == [
        {"text": "one", "f_one": 3},
        {"text": "three", "f_three": 5},
    ]
    assert [dict(each.headers) for each in made] == [{"length": b"3"}, {"length": b"5"}]
    assert [_payload(each.value) for each in kit.records("routed")] == ["n1", "n2"]
    letters = kit.records("letters")
    assert [each.value for each in letters] == [b"bad", b"deep"]
    headers = [dict(each.headers) for each in letters]
    assert headers[0]["__connect.errors.origin"] == b"for topic lines"
    assert headers[0]["__connect.errors.stage"] == b"TRANSFORMATION"
    assert b"a bad text" in (headers[0]["__connect.errors.exception.message"] or b"")
    assert b"StackOverflowError" in (headers[1]["__connect.errors.exception.message"] or b"")


def _payload(value: Any) -> Any:
    found = json.loads(value) if isinstance(value, bytes) else value
    return found["payload"] if isinstance(found, dict) and "payload" in found else found


def test_a_failing_record_fails_the_task_with_its_position(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    file = lines(tmp_path / "in", "one", "bad", "three")
    config = {**NAMED, "value.converter": "JsonConverter"}
    kit = source_kit(FileStreamSource, config, file=file, topic="lines")
    with pytest.raises(TaskFailedError, match=r"record for topic lines failed in .*a bad text"):
        kit.run(until=lambda: False)


def test_a_converter_in_java_writes_and_reads_bytes(
    source_kit: MakeSource, sink_kit: MakeSink, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = lines(tmp_path / "in", "one", "two")
    java = {"value.converter": "org.acme.Steps$Brackets", "value.converter.open": " ["}
    kit = source_kit(FileStreamSource, java, file=file, topic="lines")
    kit.run(until=lambda: len(kit.records("lines")) >= 2)
    assert [each.value for each in kit.records("lines")] == ["one", "two"]
    sink = sink_kit(ConsoleSink, {**java, **TOLERANT}, topics="lines")
    sink.feed([b" [three]", None, b"four"], topic="lines")
    sink.run(batches=1)
    assert sink.committed == {TopicPartition("lines", 0): 3}
    (letter,) = sink.records("letters")
    assert letter.value == b"four"
    assert b"no bracket" in (dict(letter.headers)["__connect.errors.exception.message"] or b"")


def test_the_end_of_the_jvm_fails_the_task_and_no_record(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    file = lines(tmp_path / "in", "one")
    config = {**NAMED, **TOLERANT, "value.converter": "JsonConverter"}
    kit = source_kit(FileStreamSource, config, file=file, topic="lines")
    kit.run(until=lambda: len(kit.records("lines-x")) >= 1)
    for shared in list(HOSTS._hosts.values()):
        os.kill(shared.host.process_id, signal.SIGKILL)
    with file.open("a") as stream:
        stream.write("two\n")
    with pytest.raises(TaskFailedError, match="was killed by signal 9"):
        kit.run(until=lambda: False)
    kit.run(until=lambda: len(kit.records("lines-x")) >= 2)
    assert not kit.records("letters")


def test_isolated_tasks_have_their_own_jvms_for_steps(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    file = lines(tmp_path / "in", "one")
    config = {**NAMED, "value.converter": "JsonConverter"}
    isolated = {**config, "java.isolation": "task"}
    kits = [
        source_kit(FileStreamSource, {**each, "name": topic}, file=file, topic=topic)
        for topic, each in (("shared", config), ("own", isolated), ("other", isolated))
    ]
    for kit, topic in zip(kits, ("shared", "own", "other"), strict=True):
        kit.run(until=lambda kit=kit, topic=topic: len(kit.records(f"{topic}-x")) >= 1)  # type: ignore[misc]
    own = [each for (_, owner, _), each in HOSTS._hosts.items() if owner]
    assert len(own) == 2
    os.kill(own[0].host.process_id, signal.SIGKILL)
    with file.open("a") as stream:
        stream.write("two\n")
    kits[0].run(until=lambda: len(kits[0].records("shared-x")) >= 2)
    failed = []
    for kit, topic in zip(kits[1:], ("own", "other"), strict=True):
        try:
            kit.run(until=lambda kit=kit, topic=topic: len(kit.records(f"{topic}-x")) >= 2)  # type: ignore[misc]
        except TaskFailedError:
            failed.append(topic)
    assert len(failed) == 1


def test_the_steps_of_a_preview_have_their_own_jvm(
    source_kit: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = noted_owners(monkeypatch)
    file = lines(tmp_path / "in", "one")
    config = {**NAMED, "name": "seen", "value.converter": "JsonConverter"}
    found = previewed(source_kit(FileStreamSource, config, file=file, topic="lines"))
    assert [row.records[-1].topic for row in found.rows] == ["lines-x"]
    assert set(owners) == {"preview of seen"}


def test_validation_configures_the_class_and_lists_versions(home: Path, tmp_path: Path) -> None:
    step_finder.use_java_steps(in_engine=False)
    good = {
        "name": "x",
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in"),
        "topic": "lines",
        **NAMED,
        "transforms.name.plugin.version": "[1.0,1.1)",
    }

    def faults(**changes: str | None) -> dict[str, tuple[str, ...]]:
        raw = {name: text for name, text in {**good, **changes}.items() if text is not None}
        values = validate_config(FileStreamSource, raw)
        return {each.key.name: each.errors for each in values if each.errors}

    assert not faults()
    assert faults(**{"transforms.name.suffix": None}) == {
        "transforms.name.suffix": ("is required",)
    }
    (spaced,) = faults(**{"transforms.name.suffix": "a b"}).items()
    assert spaced[0] == "transforms.name.type"
    assert "must have no space" in spaced[1][0]
    (version,) = faults(**{"transforms.name.plugin.version": "2.0"}).items()
    assert version[0] == "transforms.name.plugin.version"
    assert "but in 1.0, 1.1" in version[1][0]
    (native,) = faults(
        **{"value.converter": "JsonConverter", "value.converter.plugin.version": "4.4.0"}
    ).items()
    assert native[0] == "value.converter.plugin.version"
    assert not faults(
        **{"value.converter": "java:JsonConverter", "value.converter.plugin.version": "[4.0,)"}
    )


def test_debeziums_own_transform_unwraps_the_records_of_a_native_source(
    source_kit: MakeSource, home: Path, tmp_path: Path
) -> None:
    require_mvn()
    install.add(DEBEZIUM, home, host=None)
    row = {"id": 7, "name": "x"}
    changes = [
        {"before": row, "after": {**row, "name": "y"}, "source": {"table": "t"}, "op": "u"},
        {"before": row, "after": None, "source": {"table": "t"}, "op": "d"},
    ]
    file = lines(tmp_path / "in.json", *(json.dumps(each) for each in changes))
    config = {
        "format": "json",
        "path": str(file),
        "schema": "before struct<id bigint, name string>, after struct<id bigint, name string>, "
        "source struct<table string>, op string",
        "transforms": "envelope,unwrap",
        "transforms.envelope.type": "SetSchemaMetadata$Value",
        "transforms.envelope.schema.name": "shop.t.Envelope",
        "transforms.unwrap.type": "java:io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op,source.table",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    kit = source_kit(FilesSource, config, topic="lines")
    kit.run(until=lambda: len(kit.records("lines")) >= 2)
    assert [_payload(each.value) for each in kit.records("lines")] == [
        {"id": 7, "name": "y", "__deleted": "false", "__op": "u", "__source_table": "t"},
        {"id": 7, "name": "x", "__deleted": "true", "__op": "d", "__source_table": "t"},
    ]
