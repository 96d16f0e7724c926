"""Which steps of a Java connector's config run in its JVM, and which in Drover."""

from dataclasses import replace

import pytest

from drover.connectors.java.chain import HostSettings, hosted_config

CAST = "org.apache.kafka.connect.transforms.Cast$Value"
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"


def settings(*, is_source: bool = True, java: tuple[str, ...] = ()) -> HostSettings:
    return HostSettings(is_source=is_source, has_class=lambda name: name in java)


def with_transforms(*types: str) -> dict[str, str | None]:
    names = [f"t{n}" for n in range(len(types))]
    config: dict[str, str | None] = {"transforms": ", ".join(names)}
    return config | {f"transforms.{n}.type": each for n, each in zip(names, types, strict=True)}


@pytest.mark.parametrize(
    ("types", "hosted", "native"),
    [
        ((CAST,), ["t0"], []),
        ((f"java:{CAST}",), ["t0"], []),
        (("java:io.debezium.transforms.ExtractNewRecordState",), ["t0"], []),
        (("io.debezium.transforms.ExtractNewRecordState",), [], ["t0"]),
        (("org.acme.Mask",), ["t0"], []),
        ((CAST, "Sql"), ["t0"], ["t1"]),
        (("Sql",), [], ["t0"]),
    ],
)
def test_transforms_of_kafka_and_of_plugins_run_in_the_host(
    types: tuple[str, ...], hosted: list[str], native: list[str]
) -> None:
    split = settings(java=("org.acme.Mask",)).split(with_transforms(*types))
    assert (split.hosted, split.native) == (hosted, native)
    assert split.is_mixed == bool(native)


@pytest.mark.parametrize(
    ("is_source", "types", "hosted"),
    [
        (True, (CAST, "Sql"), ["t0"]),
        (True, ("Sql", CAST), []),
        (True, (CAST, "Sql", CAST), ["t0"]),
        (False, ("Sql", CAST), ["t1"]),
        (False, (CAST, "Sql"), []),
        (False, (CAST, "Sql", CAST), ["t2"]),
    ],
)
def test_the_host_runs_the_transforms_next_to_the_plugin(
    is_source: bool, types: tuple[str, ...], hosted: list[str]
) -> None:
    split = settings(is_source=is_source).split(with_transforms(*types))
    assert split.hosted == hosted
    assert split.native == [f"t{n}" for n in range(len(types)) if f"t{n}" not in hosted]


def test_the_host_gets_full_names_and_kafkas_defaults() -> None:
    raw = {"value.converter": "StringConverter", **with_transforms(f"java:{CAST}"), "file": "/x"}
    translation = settings().translated(raw, ())
    assert set(translation.config) == {
        "file",
        "java.host.value.converter",
        "java.host.transforms",
        "java.host.transforms.t0.type",
    }
    config = hosted_config(translation.config)
    assert config["value.converter"] == STRING
    assert config["key.converter"] == JSON
    assert config["transforms.t0.type"] == CAST
    assert config["file"] == "/x"


def test_host_and_drover_exchange_json_where_drover_has_a_part() -> None:
    raw = {"value.converter": "AvroConverter", **with_transforms(CAST, "Sql")}
    translation = settings().translated(raw, ())
    assert translation.config["transforms"] == "t1"
    assert translation.config["value.converter"] == "AvroConverter"
    assert translation.config["key.converter"] == "JsonConverter"
    config = hosted_config(translation.config)
    assert (config["key.converter"], config["value.converter"]) == (JSON, JSON)
    assert config["transforms"] == "t0"
    assert "transforms.t1.type" not in config


def test_a_java_converter_after_a_transform_of_drover_is_drovers_step() -> None:
    raw = {"value.converter": "java:org.acme.Odd", **with_transforms("Sql")}
    translation = settings().translated(raw, ())
    assert translation.config["value.converter"] == "java:org.acme.Odd"
    assert hosted_config(translation.config)["value.converter"] == JSON


@pytest.mark.parametrize(
    "setting", ["transforms.t0.type", "predicates.p.type", "value.converter", "header.converter"]
)
def test_each_class_of_the_host_must_be_allowed(setting: str) -> None:
    allowed = HostSettings(has_class=lambda name: name == "org.acme.Mask")
    refusing = replace(allowed, class_fault=lambda name: f"{name} is not allowed")
    raw = {**with_transforms(CAST), "predicates": "p", "predicates.p.type": "RecordIsTombstone"}
    raw[setting] = "org.acme.Mask"
    assert not list(allowed.faults_of(raw, ()))
    (fault,) = refusing.faults_of(raw, ())
    assert (fault.field, fault.description) == (
        setting,
        "cannot be used: org.acme.Mask is not allowed",
    )
