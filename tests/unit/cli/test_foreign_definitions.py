"""Definitions of other products: Strimzi's KafkaConnector, and .properties files."""

import io
import sys
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.definitions import (
    Definition,
    DefinitionError,
    parse_definition,
    parse_definitions,
    read_definition,
    read_definitions,
)
from tests.support.fake_cluster import FakeCluster, Run

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata:
  name: lines
  labels: {strimzi.io/cluster: connect}
spec:
  class: org.apache.kafka.connect.file.FileStreamSourceConnector
  tasksMax: 2
  config:
    file: /opt/kafka/LICENSE
    topic: lines
"""
LABELS = "labels: {strimzi.io/cluster: connect}"
CONFIG = {
    "file": "/opt/kafka/LICENSE",
    "topic": "lines",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "2",
}
JSON_RESOURCE = (
    '{"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaConnector", "metadata": {"name": "lines"},'
    ' "spec": {"class": "X", "config": {"a": true, "b": 1.50, "c": 12345678901234567890}}}'
)


def fault(text: str, label: str = "c.yaml") -> str:
    with pytest.raises(DefinitionError) as caught:
        parse_definition(text, label)
    message = str(caught.value)
    assert message.startswith(label)
    assert "\n" not in message
    return message


def test_a_resource_is_a_definition() -> None:
    found = parse_definition(RESOURCE, "c.yaml")
    assert found == Definition("lines", CONFIG)
    assert not found.warnings


def test_numbers_and_booleans_become_text() -> None:
    text = (
        RESOURCE + "    big: 12345678901234567890\n    part: 1.50\n    on: True\n    off: 'yes'\n"
    )
    config = parse_definition(text, "c.yaml").config
    assert [config[each] for each in ("big", "part", "on", "off")] == [
        *("12345678901234567890", "1.50", "true", "yes"),
    ]
    assert parse_definition(JSON_RESOURCE, "c.json").config == {
        "a": "true",
        "b": "1.50",
        "c": "12345678901234567890",
        "connector.class": "X",
    }


def test_words_are_booleans_where_kubernetes_reads_booleans() -> None:
    words = {"a": "yes", "b": "On", "c": "no", "d": "OFF", "e": "y"}
    text = RESOURCE + "".join(f"    {name}: {word}\n" for name, word in words.items())
    config = parse_definition(text, "c.yaml").config
    assert [config[name] for name in words] == ["true", "true", "false", "false", "y"]
    assert parse_definition("name: a\nconnector.class: X\nb: yes\n", "c.yaml").config["b"] == "yes"


@pytest.mark.parametrize("number", ["0644", "0x1F", "1_000"])
def test_a_number_that_kubernetes_reads_otherwise_is_refused(number: str) -> None:
    message = fault(RESOURCE + f"    mode: {number}\n")
    assert message.startswith("c.yaml:12:11: ")
    assert parse_definition(f"name: a\nconnector.class: X\nb: {number}\n", "c.yaml").config["b"]


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ("state: running", "STARTED"),
        ("state: paused", "PAUSED"),
        ("state: stopped", "STOPPED"),
        ("pause: true", "PAUSED"),
        ("pause: false", ""),
        ("pause: false\n  state: paused", "PAUSED"),
    ],
)
def test_the_state_is_that_of_a_new_connector(spec: str, state: str) -> None:
    found = parse_definition(RESOURCE.replace("config:", f"{spec}\n  config:"), "c.yaml")
    assert found.initial_state == state


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("kind: KafkaConnector\n", "", "kind is missing"),
        ("KafkaConnector", "KafkaConnect", "kind KafkaConnect describes the workers"),
        ("KafkaConnector", "KafkaTopic", "kind KafkaTopic is no connector"),
        ("KafkaConnector", "[x]", "of another form"),
        ("apiVersion: kafka.strimzi.io/v1beta2\n", "", "apiVersion is missing"),
        ("kafka.strimzi.io/v1beta2", "v1", "apiVersion is v1"),
        ("  name: lines\n", "", "metadata.name is missing"),
        ("  class: org.apache.kafka.connect.file.FileStreamSourceConnector\n", "", "spec.class"),
        ("tasksMax", "taskMax", "spec.taskMax is no field"),
        ("tasksMax: 2", "tasksMax: [2]", "spec.tasksMax must be a single value"),
        ("tasksMax: 2", "state: RUNNING", "spec.state must be one of running, paused, stopped"),
        ("tasksMax: 2", "pause: maybe", "spec.pause must be true or false"),
        ("tasksMax: 2", "version: '[1.0,2.0)'", "spec.version selects one of several"),
        ("file: /opt/kafka/LICENSE", "file:", '"spec.config.file" has no value'),
        ("file: /opt/kafka/LICENSE", "file: [a]", '"spec.config.file" is a list'),
        ("file: /opt/kafka/LICENSE", "file: {a: b}", '"spec.config.file" is an object'),
        ("topic: lines", "topic: lines\n    topic: x", 'the key "topic" is duplicated'),
        (
            "file: /opt/kafka/LICENSE",
            "file: {valueFrom: {secretKeyRef: {name: db, key: password}}}",
            '"spec.config.file" has valueFrom',
        ),
        (
            "  labels: {strimzi.io/cluster: connect}",
            "  annotations: {strimzi.io/connector-offsets: reset}",
            "connector-offsets: reset is an action of the operator",
        ),
    ],
)
def test_a_faulty_resource_is_refused(before: str, after: str, message: str) -> None:
    assert before in RESOURCE
    assert message in fault(RESOURCE.replace(before, after))


def test_every_fault_of_a_resource_is_reported() -> None:
    text = RESOURCE.replace("name: lines", "label: x").replace("tasksMax", "taskMax") + "    n:\n"
    message = fault(text)
    for each in ("metadata.name is missing", "spec.taskMax is no field", "spec.config.n"):
        assert each in message


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ("autoRestart: {enabled: true}", "restart.attempts.max in spec.config limits"),
        ("autoRestart: {enabled: false}", "restart.policy: never in spec.config prevents"),
        ("listOffsets: {toConfigMap: {name: m}}", "`drover connector offsets lines` shows"),
        ("alterOffsets: {fromConfigMap: {name: m}}", "with --file alters them"),
        ("state: running\n  pause: true", "spec.pause has no effect"),
    ],
)
def test_what_has_no_effect_is_a_warning(spec: str, warning: str) -> None:
    found = parse_definition(RESOURCE.replace("config:", f"{spec}\n  config:"), "c.yaml")
    (text,) = found.warnings
    assert text.startswith("c.yaml: ")
    assert warning in text


@pytest.mark.parametrize(
    ("annotation", "warning"),
    [
        ('strimzi.io/restart: "true"', "`drover connector restart lines`"),
        ('strimzi.io/restart-task: "0"', "`drover connector restart lines`"),
        ('strimzi.io/pause-reconciliation: "true"', "spec.state: paused pauses"),
        ('strimzi.io/pause: "true"', "spec.state: paused pauses"),
        ("strimzi.io/connector-offsets: list", "has no effect"),
    ],
)
def test_actions_of_the_operator_are_warnings(annotation: str, warning: str) -> None:
    text = RESOURCE.replace(LABELS, f"annotations: {{{annotation}}}")
    (found,) = parse_definition(text, "c.yaml").warnings
    assert warning in found


def test_other_annotations_are_ignored() -> None:
    text = RESOURCE.replace(LABELS, "annotations: {a.b/c: d}")
    assert not parse_definition(text, "c.yaml").warnings


def test_the_fields_of_the_resource_replace_settings() -> None:
    found = parse_definition(RESOURCE + "    tasks.max: 9\n    connector.class: Y\n", "c.yaml")
    assert dict(found.config) == CONFIG
    assert len(found.warnings) == 2
    same = parse_definition(RESOURCE + "    tasks.max: 2\n", "c.yaml")
    assert (same, same.warnings) == (Definition("lines", CONFIG), ())


def test_a_resource_needs_no_config() -> None:
    head = RESOURCE.partition("  config:")[0]
    for text in (head, f"{head}  config:\n", f"{head}  config: {{}}\n"):
        assert parse_definition(text, "c.yaml").config.keys() == {"connector.class", "tasks.max"}
    assert "spec.config is no object" in fault(f"{head}  config: [a]\n")


def test_a_file_may_have_several_resources() -> None:
    second = RESOURCE.replace("name: lines", "name: more")
    found = parse_definitions(f"---\n{RESOURCE}---\n{second}---\n", "c.yaml")
    assert [each.name for each in found] == ["lines", "more"]
    texts = [f"- {each}".replace("\n", "\n  ").rstrip() for each in (RESOURCE, second)]
    items = "items:\n" + "\n".join(texts)
    for kind, version in (("List", "v1"), ("KafkaConnectorList", "kafka.strimzi.io/v1beta2")):
        listed = parse_definitions(f"apiVersion: {version}\nkind: {kind}\n{items}", "c.yaml")
        assert [each.name for each in listed] == ["lines", "more"]
        assert listed[1].place == "c.yaml, item 2"
    assert "holds 2 connectors; only `drover apply` takes several" in fault(
        f"apiVersion: v1\nkind: List\n{items}"
    )


def test_aliases_do_not_multiply() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [
        f"a{n}: &a{n} {{{', '.join(f'k{each}: *a{n - 1}' for each in range(9))}}}"
        for n in range(1, 40)
    ]
    message = fault("\n".join(lines))
    assert '"a0" is an object' in message
    assert "and 20 more faults" in message
    assert fault("a: &a {b: *a}") == "c.yaml: nested too deeply"
    found = parse_definition("name: a\nconnector.class: &x X\ncopy: *x\n", "c.yaml")
    assert found.config["copy"] == "X"


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("name=a\nconnector.class=X\n", {"name": "a", "connector.class": "X"}),
        ("name = a\nx : 1\ny 2\nz\n", {"name": "a", "x": "1", "y": "2", "z": ""}),
        ("# c\n! d\n\n  name=a\n", {"name": "a"}),
        ("name=a\\\n   b\\\n\tc\n", {"name": "abc"}),
        ("name=a\nx=\\u00e9\\ud83d\\ude00\\t\\:\n", {"name": "a", "x": "é😀\t:"}),
        ("name=a\r\nx=C:\\\\dir\\\\file\r\n", {"name": "a", "x": "C:\\dir\\file"}),
        ("name=a\nx\\ y\\=z=1\n", {"name": "a", "x y=z": "1"}),
        ("name=a\nx=1 # no comment \n", {"name": "a", "x": "1 # no comment "}),
        ("name=a\nx\u00a0y=1\n", {"name": "a", "x\u00a0y": "1"}),
        ("name=a\nx=\\\n# text of x\n", {"name": "a", "x": "# text of x"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, config: dict[str, str]) -> None:
    assert parse_definition(text, "c.properties") == Definition(config["name"], config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name=a\n\nname=b\n", 'c.properties:3: the key "name" is in line 1 already'),
        ("name=\\u00g1\n", "c.properties: line 1: \\u is not followed by four hexadecimal digits"),
        ("a=1\nname=\\ud83d\n", "c.properties: line 2: a \\u escape is half of a surrogate pair"),
        ("# only a comment\n", "c.properties holds nothing"),
    ],
)
def test_faulty_properties_are_refused(text: str, message: str) -> None:
    assert fault(text, "c.properties").startswith(message)


def test_properties_are_read_in_the_encoding_of_java(tmp_path: Path) -> None:
    for number, raw in enumerate(
        (b"name=caf\xe9", b"name=caf\xc3\xa9", b"\xef\xbb\xbfname=caf\xc3\xa9")
    ):
        file = tmp_path / f"{number}.properties"
        file.write_bytes(raw)
        assert read_definition(str(file)).name == "café"


def test_a_folder_includes_properties(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("name=a\nconnector.class=X\n")
    (tmp_path / "b.yaml").write_text(RESOURCE)
    assert [each.name for each in read_definitions([str(tmp_path)])] == ["a", "lines"]


def test_a_resource_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + RESOURCE.encode()))
    )
    assert read_definition("-") == Definition("lines", CONFIG)


@pytest.fixture
def resource(cluster: FakeCluster, tmp_path: Path) -> str:
    file = tmp_path / "c.yaml"
    extra = "autoRestart: {enabled: true}\n  state: stopped\n  config:"
    file.write_text(RESOURCE.replace("config:", extra))
    connector = pb.Connector(name="lines", config=CONFIG, target_state=pb.TARGET_STATE_STARTED)
    cluster.answers |= {
        "CreateConnector": pb.CreateConnectorResponse(connector=connector),
        "ValidateConfig": pb.ValidateConfigResponse(),
        "PreviewConnector": pb.PreviewConnectorResponse(),
        "PlanConnectorConfig": pb.PlanConnectorConfigResponse(),
        "PutConnectorConfig": pb.PutConnectorConfigResponse(connector=connector),
        "ListConnectors": pb.ListConnectorsResponse(
            connectors=[pb.ListConnectorsResponse.Entry(name="lines", connector=connector)]
        ),
    }
    return str(file)


@pytest.mark.parametrize(
    "command",
    [
        ("connector", "create", "-f"),
        ("connector", "validate", "-f"),
        ("connector", "preview"),
        ("connector", "plan"),
        ("apply", "-f"),
    ],
    ids=" ".join,
)
def test_every_command_takes_a_resource_and_shows_its_warnings(
    cluster: FakeCluster, drover: Run, resource: str, command: tuple[str, ...]
) -> None:
    code, _, err = drover(*command, resource)
    assert code == 0
    assert "warning: " in err
    assert "spec.autoRestart has no effect" in err
    sent = next(each for each in cluster.requests if getattr(each, "config", None))
    assert {**sent.config} | {"name": "lines"} == {**CONFIG, "name": "lines"}


def test_a_resource_creates_a_connector_in_its_state(
    cluster: FakeCluster, drover: Run, resource: str
) -> None:
    drover("connector", "create", "-f", resource)
    assert cluster.requests[0].initial_state == pb.TARGET_STATE_STOPPED


def test_apply_warns_of_another_state_of_an_existing_connector(
    cluster: FakeCluster, drover: Run, resource: str
) -> None:
    code, _, err = drover("apply", "-f", resource)
    assert code == 0
    assert "the state is STOPPED, and lines is STARTED: `drover connector stop lines`" in err
