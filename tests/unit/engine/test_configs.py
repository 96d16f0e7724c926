"""Values of config providers: plugins get them, and the engine's output never has them."""

import base64
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from drover.api.common.v1 import preview_pb2
from drover.api.engine.v1 import engine_pb2
from drover.config.providers import ConfigData, FileConfigProvider
from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    InRange,
    SourceConnector,
    SourceTask,
)
from drover.connector.catalogue import PluginRegistry
from drover_worker.engine.plugins import expiry
from drover_worker.engine.plugins.configs import EngineConfigs, HidingStream
from drover_worker.engine.plugins.connectors import ConnectorRegistry
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.plugins.validation import validate
from drover_worker.engine.settings import EngineLimits
from tests.support.waiting import wait_until

SECRET = "hunter22"


class Database(SourceConnector):
    """Leaks its password wherever it can."""

    task_class = SourceTask
    started_with: ClassVar[list[Mapping[str, Any]]] = []

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("password", ConfigType.PASSWORD),
            ConfigKey("port", ConfigType.INT, default=1, validator=InRange(1, 9)),
            ConfigKey("fail", ConfigType.STRING, default=""),
        )

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        self.started_with.append(config)
        self._password = config["password"].value
        if config["fail"]:
            raise RuntimeError(f"cannot log in with {self._password}")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"url": f"db://u:{self._password}@host", "password": self._password}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "db.properties"
    file.write_text(f"password={SECRET}\nport=22222\n")
    return file


@pytest.fixture
def configs(file: Path) -> EngineConfigs:
    return EngineConfigs(providers={"file": {"allowed.paths": str(file.parent)}})


@pytest.fixture
def reports() -> list[engine_pb2.EngineReport]:
    return []


@pytest.fixture
def registry(
    configs: EngineConfigs, reports: list[engine_pb2.EngineReport]
) -> Iterator[ConnectorRegistry]:
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _: None)
    send = configs.hiding(reports.append)
    registry = ConnectorRegistry(PluginRegistry(lambda: ()), threads, EngineLimits(), send, configs)
    Database.started_with.clear()
    yield registry
    registry.close()


def config(file: Path, **settings: str) -> dict[str, str]:
    return {
        "name": "db",
        "connector.class": f"{__name__}.Database",
        "password": f"${{file:{file}:password}}",
        **settings,
    }


def start(
    registry: ConnectorRegistry, reports: list[engine_pb2.EngineReport], config: dict[str, str]
) -> engine_pb2.EngineReport:
    registry.start(1, engine_pb2.StartConnector(connector="db", config=config, run_id=7))
    wait_until(lambda: reports)
    return reports.pop(0)


def test_a_connector_is_started_with_the_value_and_its_task_configs_have_the_placeholder(
    registry: ConnectorRegistry, reports: list[engine_pb2.EngineReport], file: Path
) -> None:
    assert start(registry, reports, config(file)).HasField("done")
    assert Database.started_with[0]["password"].value == SECRET
    registry.generate_task_configs(2, engine_pb2.GenerateTaskConfigs(connector="db", max_tasks=1))
    wait_until(lambda: reports)
    placeholder = f"${{file:{file}:password}}"
    assert dict(reports[0].task_configs.task_configs[0].config) == {
        "url": f"db://u:{placeholder}@host",
        "password": placeholder,
    }


def test_a_trace_shows_the_placeholder(
    registry: ConnectorRegistry, reports: list[engine_pb2.EngineReport], file: Path
) -> None:
    failure = start(registry, reports, config(file, fail="yes")).failure
    for text in (failure.message, failure.trace):
        assert SECRET not in text
        assert f"cannot log in with ${{file:{file}:password}}" in text


def test_what_cannot_be_resolved_starts_nothing(
    registry: ConnectorRegistry, reports: list[engine_pb2.EngineReport], file: Path
) -> None:
    file.unlink()
    failure = start(registry, reports, config(file)).failure
    assert "cannot be read: No such file" in failure.message
    assert Database.started_with == []


def test_a_validated_config_shows_what_was_written(configs: EngineConfigs, file: Path) -> None:
    written = config(file, port=f"${{file:{file}:port}}", fail=f"${{file:{file}:nothing}}")
    answer = validate(PluginRegistry(lambda: ()), configs.resolve_connector(written))
    report = engine_pb2.EngineReport(validation=answer)
    configs.hiding(lambda _: None)(report)
    values = {value.key.name: value for value in report.validation.values}
    assert {name: values[name].value for name in written} == written
    assert not values["password"].errors
    (fault,) = values["port"].errors
    assert fault.startswith("the value from the config provider is not valid here")
    (fault,) = values["fail"].errors
    assert "the provider has no such value" in fault
    assert SECRET not in str(report)


def test_a_placeholder_in_a_url_is_told_where_it_belongs(
    configs: EngineConfigs, file: Path
) -> None:
    written = config(file, fail=f"db://ann:${{file:{file}:password}}@host")
    values = validate(PluginRegistry(lambda: ()), configs.resolve_connector(written)).values
    (errors,) = [list(each.errors) for each in values if each.key.name == "fail"]
    assert errors == ["must not contain a password: set it as password"]


FORMS = (
    SECRET,
    SECRET.upper(),
    f"{SECRET}@host",
    "%68unter22 hunter22",
    base64.b64encode(f"u:{SECRET}".encode()).decode(),
    SECRET.encode().hex(),
)


def test_a_preview_shows_the_placeholder(configs: EngineConfigs, file: Path) -> None:
    placeholder = f"${{file:{file}:password}}"
    configs.resolve({"password": placeholder}, "db")
    preview = preview_pb2.Preview(notes=FORMS)
    for form in FORMS:
        row = preview.rows.add(place=form, error=form)
        record = row.records.add(topic=form, key=json.dumps(form), value=json.dumps({"a": form}))
        record.headers.add(key=form, value=form)
        record.headers.add(key="empty")
        preview.steps.append(form)
        row.dropped_by = row.failed_step = form
        schemas = preview.schemas.add(step=form, keys=[form], values=[form])
        schemas.topics.add(topic=form, read_topic=form, key=form, value=form)
    preview.rows.add(place="file 1", error="no secret").records.add(topic="t")
    report = engine_pb2.EngineReport(preview=preview)
    configs.hiding(lambda _: None)(report)
    found = str(report).lower()
    assert not [form for form in FORMS if form.lower().strip("=") in found]
    assert placeholder in report.preview.rows[0].records[0].value
    assert json.loads(report.preview.rows[0].records[0].value) == {"a": placeholder}
    assert not report.preview.rows[-1].records[0].HasField("value")
    assert report.preview.rows[-1].error == "no secret"


def test_what_is_logged_shows_the_placeholder(configs: EngineConfigs, file: Path) -> None:
    stream = io.StringIO()
    hiding = cast("Any", HidingStream(stream, configs.hidden))
    print(f"before {SECRET}", file=hiding)
    configs.resolve({"password": f"${{file:{file}:password}}"}, "db")
    print(f"after {SECRET}", file=hiding, flush=True)
    assert stream.getvalue() == f"before {SECRET}\nafter ${{file:{file}:password}}\n"
    assert not hiding.closed


@pytest.mark.parametrize(("action", "told"), [("restart", True), ("none", False)])
def test_a_value_that_holds_no_longer_is_told(
    registry: ConnectorRegistry,
    reports: list[engine_pb2.EngineReport],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    told: bool,
) -> None:
    monkeypatch.setattr(expiry, "TTL_MIN_MS", 1)
    monkeypatch.setattr(
        FileConfigProvider, "get", lambda *_: ConfigData({"password": SECRET}, ttl_ms=1)
    )
    started = start(registry, reports, config(file, **{"config.action.reload": action}))
    if told:
        wait_until(lambda: reports)
        assert reports.pop() == engine_pb2.EngineReport(
            config_expired=engine_pb2.ConfigExpired(connector="db", run_id=7)
        )
    assert started.HasField("done")
    registry.stop(3, "db")
    wait_until(lambda: reports)
    assert reports[0] == engine_pb2.EngineReport(call_id=3, done=engine_pb2.Done())


def test_a_provider_that_hangs_holds_up_nobody_else(
    configs: EngineConfigs, reports: list[engine_pb2.EngineReport], file: Path
) -> None:
    hanging = file.with_name("hanging.properties")
    os.mkfifo(hanging)  # the open blocks until a process opens the pipe for writing
    threads = PluginThreads(abandoned_max=8, on_exhausted=lambda _: None)
    limits = EngineLimits(start_ms=2_000)
    registry = ConnectorRegistry(
        PluginRegistry(lambda: ()), threads, limits, reports.append, configs
    )
    stuck = {**config(file), "password": f"${{file:{hanging}:password}}"}
    registry.start(1, engine_pb2.StartConnector(connector="stuck", config=stuck, run_id=7))
    registry.start(2, engine_pb2.StartConnector(connector="db", config=config(file), run_id=8))
    wait_until(lambda: len(reports) == 2)
    assert [(each.call_id, each.HasField("done")) for each in reports] == [(2, True), (1, False)]
    assert "did not return within 2 s" in reports[1].failure.message
    hanging.write_text("")  # releases the thread
    registry.close()
