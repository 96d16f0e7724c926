"""Settings that a connector does not define: accepted, refused, warned about or passed on."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    OneOf,
    OtherSettings,
    SinkConnector,
    Violation,
)
from drover.connector.settings import parse_config, task_config, validate_config


def _odd(raw: Mapping[str, str | None]) -> Iterator[Violation]:
    if raw.get("odd"):
        yield Violation("odd", "is odd")


class Sink(SinkConnector):
    other_settings = OtherSettings(
        renamed={
            "primary.key.mode": "pk.mode",
            "evolution": {
                "none": {"create": "false", "evolve": "false"},
                "basic": {"create": "true", "evolve": "true"},
            },
        },
        refused={"time.zone": ("", "UTC"), "mask.*": (), "both": ()},
        without_effect={"pool.*": "", "pool.size": "tasks.max says how many"},
        passed_on=("library.*",),
        faults=_odd,
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("pk.mode", ConfigType.STRING, validator=OneOf("none", "key")),
            ConfigKey("create", ConfigType.BOOLEAN, default=False),
            ConfigKey("evolve", ConfigType.BOOLEAN, default=False),
            ConfigKey("both", ConfigType.STRING, default=None),
        )

    @classmethod
    def validate(cls, config: Mapping[str, object]) -> Sequence[Violation]:
        if config.get("evolve") and config.get("pk.mode") == "none":
            return [Violation("evolve", "needs a key")]
        return [Violation("mask.a", "said otherwise")] if config.get("mask.a") else []

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}] * max_tasks


_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
RAW = {"name": "s", "connector.class": "Sink", "topics": "a", "primary.key.mode": "key"}


def faults(**more: str) -> dict[str, list[str]]:
    """The faults of a config, by setting; parsing and validating agree."""
    raw = RAW | {name.replace("_", "."): value for name, value in more.items()}
    found: dict[str, list[str]] = {}
    for each in parse_config(Sink, raw).violations:
        found.setdefault(each.field, []).append(each.description)
    validated = validate_config(Sink, raw)
    assert {each.key.name: list(each.errors) for each in validated if each.errors} == found
    return found


def warnings(**more: str) -> dict[str, tuple[str, ...]]:
    raw = RAW | {name.replace("_", "."): value for name, value in more.items()}
    return {each.key.name: each.warnings for each in validate_config(Sink, raw) if each.warnings}


def test_another_name_is_understood_and_kept_in_the_answer() -> None:
    values = parse_config(Sink, RAW | {"evolution": " basic"}).require_valid()
    assert (values["pk.mode"], values["create"], values["evolve"]) == ("key", True, True)
    assert task_config(Sink, RAW | {"evolution": "none"}, {})["create"] is False
    answer = {each.key.name: each for each in validate_config(Sink, RAW)}
    assert "pk.mode" not in answer
    assert answer["primary.key.mode"].text == "key"
    assert answer["primary.key.mode"].key.valid_values == ("none", "key")
    assert warnings(evolution="basic") == {}


def test_faults_are_told_by_the_name_that_was_given() -> None:
    assert "must be one of none, key" in faults(primary_key_mode="header")["primary.key.mode"][0]
    assert faults(primary_key_mode="none", evolution="basic") == {"evolution": ["needs a key"]}
    assert "must be one of none, basic, not 'all'" in faults(evolution="all")["evolution"]
    (text,) = faults(pk_mode="key")["primary.key.mode"]
    assert text == "must not be set together with pk.mode, its name in Drover"


def test_what_would_change_the_data_is_a_fault_unless_it_says_what_happens_anyway() -> None:
    found = faults(time_zone="Mars", mask_b="x", odd="1")
    assert found.keys() == {"time.zone", "mask.b", "odd"}
    assert found["time.zone"] == [
        "is not supported and would change the data: remove it, or set it to UTC"
    ]
    assert found["mask.b"] == ["is not supported and would change the data: remove it"]
    for accepted in ("utc", " UTC ", ""):
        assert faults(time_zone=accepted) == {}
        assert warnings(time_zone=accepted) == {}


def test_what_the_connector_says_itself_wins() -> None:
    assert faults(mask_a="x") == {"mask.a": ["said otherwise"]}
    assert faults(both="x") == {}


def test_what_changes_no_data_is_a_warning() -> None:
    assert warnings(pool_size="3", pool_max="4", library_x="y") == {
        "pool.size": ("has no effect here: tasks.max says how many",),
        "pool.max": ("has no effect here",),
    }


@pytest.mark.parametrize("name", ["producer.override.linger.ms", "tasks.max.enforce"])
def test_so_are_settings_of_every_connector_of_kafka_connect(name: str) -> None:
    (warning,) = warnings(**{name: "1"})[name]
    assert warning.startswith("has no effect here")


def test_all_else_is_unknown() -> None:
    (warning,) = warnings(creates="true")["creates"]
    assert warning.endswith("did you mean create?")


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("consumer.override.bootstrap.servers", "b:9092", "copy with KafkaSource or KafkaSink"),
        ("producer.override.bootstrap.servers", "b:9092", "copy with KafkaSource or KafkaSink"),
        ("admin.override.bootstrap.servers", "b:9092", "copy with KafkaSource or KafkaSink"),
        ("consumer.override.isolation.level", "read_uncommitted", "set it to read_committed"),
        ("consumer.override.interceptor.classes", "a.B", "use a transform"),
        ("producer.override.interceptor.classes", "a.B", "use a transform"),
        ("consumer.override.value.deserializer", "a.B", "value.converter"),
        ("producer.override.key.serializer", "a.B", "key.converter"),
        ("producer.override.partitioner.class", "a.B", "partitioner.keyless"),
        ("producer.override.transactional.id", "x", "each task has its own"),
        ("consumer.override.auto.offset.reset", "by_duration:P1D", "must be one of"),
    ],
)
def test_overrides_that_decide_the_data_are_refused_with_a_remedy(
    setting: str, value: str, said: str
) -> None:
    violations = parse_config(Sink, {**RAW, setting: value}).violations
    assert [each.field for each in violations] == [setting]
    assert said in violations[0].description


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("consumer.override.max.poll.records", "9"),
        ("producer.override.compression.type", "zstd"),
        ("producer.override.acks", "1"),
        ("consumer.override.isolation.level", "read_committed"),
        ("consumer.override.value.deserializer", _BYTES),
        ("consumer.override.auto.offset.reset", " latest\n"),
    ],
)
def test_overrides_that_decide_no_data_are_accepted(setting: str, value: str) -> None:
    assert parse_config(Sink, {**RAW, setting: value}).violations == ()
