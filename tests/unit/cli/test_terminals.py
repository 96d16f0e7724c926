"""The output of commands at narrow terminals, in pipes, without colour and in other locales."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.common.v1 import failures_pb2, record_counts_pb2, topics_pb2
from drover.api.common.v1.preview_pb2 import PreviewedHeader
from drover.api.common.v1.topics_pb2 import PartitionBounds, Topic, TopicDescription, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2 as group_pb
from drover.cli.console import (
    Output,
    json_text,
    prepare_streams,
    print_document,
    print_event,
    print_refusal,
)
from drover.cli.doctor import command as doctor
from drover.cli.doctor.finding import Finding, Level
from drover.errors import InvalidArgumentError, Reason, Violation
from tests.support.fake_cluster import FakeCluster, Run

WORKER = "worker-1.warehouse.example.com:7411"
CLASS = "io.confluent.connect.jdbc.JdbcSinkConnector"
CAUSE = "OperationalError: connection to server at 10.0.0.7, port 5432 failed: Connection refused"
NAME = "warehouse-orders-copy"
MOMENT = Timestamp(seconds=1_800_000_000)
STATUS = pb.ConnectorStatus(
    name=NAME,
    type=pb.CONNECTOR_TYPE_SINK,
    connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING, worker_id=WORKER),
    tasks=[
        pb.TaskState(
            task=0,
            state=pb.RUN_STATE_FAILED,
            worker_id=WORKER,
            trace=CAUSE,
            counts=record_counts_pb2.RecordCounts(read_count=1_234_567, written_count=1_234_000),
            failures=failures_pb2.FailureHistory(
                failure_count=3,
                failures=[failures_pb2.Failure(fail_time=MOMENT, worker_id=WORKER, message=CAUSE)],
            ),
        )
    ],
    counts=record_counts_pb2.RecordCounts(read_count=1_234_567, written_count=1_234_000),
)
CONNECTOR = pb.Connector(
    name=NAME,
    type=pb.CONNECTOR_TYPE_SINK,
    config={
        "connector.class": CLASS,
        "connection.url": "jdbc:postgresql://warehouse.example.com:5432/orders",
        "errors.deadletterqueue.topic.name": "dead",
        "query": "select one column and another column from a table where some condition holds",
    },
)
LETTER = TopicRecord(
    partition=0,
    offset=12_345,
    record_time=MOMENT,
    value='{"id":1}',
    headers=[
        PreviewedHeader(key=f"__connect.errors.{key}", value=value)
        for key, value in {
            "topic": "warehouse.public.orders",
            "partition": "0",
            "offset": "67890",
            "stage": "VALUE_CONVERTER",
            "exception.class.name": "org.apache.kafka.connect.errors.DataException",
            "exception.message": "the field price is no number: 12,50 in record 4 of the batch",
        }.items()
    ],
)


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    version = pb.ConfigVersion(
        config=dict(CONNECTOR.config), changed_keys=["connection.url", "query"], current=True
    )
    plugin = pb.Plugin(class_name=CLASS, version="1.2.3", description="Writes rows. More text.")
    key = pb.ConfigKey(
        name="connection.attempts.of.the.sink", type="STRING", documentation="Long text " * 20
    )
    cluster.answers |= {
        "ListConnectors": pb.ListConnectorsResponse(
            connectors=[
                pb.ListConnectorsResponse.Entry(name=NAME, connector=CONNECTOR, status=STATUS)
            ]
        ),
        "GetConnector": pb.GetConnectorResponse(connector=CONNECTOR),
        "GetConnectorStatus": pb.GetConnectorStatusResponse(status=STATUS),
        "GetConnectorOffsets": pb.GetConnectorOffsetsResponse(
            offsets=[
                pb.ConnectorOffset(
                    partition_json='{"kafka_topic":"warehouse.public.orders","kafka_partition":0}',
                    offset_json='{"kafka_offset":1234567}',
                    end_offset=1_234_999,
                    lag=432,
                )
            ]
        ),
        "GetConnectorHistory": pb.GetConnectorHistoryResponse(
            changes=[
                pb.ConnectorChange(
                    revision=76,
                    change_time=MOMENT,
                    author="operator@host.example.com",
                    config_version=version,
                )
            ]
        ),
        "GetConnectorTopics": pb.GetConnectorTopicsResponse(topics=["warehouse.public.orders"]),
        "ListPlugins": pb.ListPluginsResponse(plugins=[plugin]),
        "GetPlugin": pb.GetPluginResponse(plugin=plugin, config_keys=[key]),
        "ListTopics": pb.ListTopicsResponse(
            topics=[Topic(name="warehouse.public.orders" * 3, partition_count=2)]
        ),
        "DescribeTopic": pb.DescribeTopicResponse(
            topic=TopicDescription(
                name="orders",
                partitions=[PartitionBounds(partition=0, start_offset=3, end_offset=9)],
                retention=Duration(seconds=60),
                settings=[
                    topics_pb2.TopicSetting(
                        name="retention.ms",
                        value="60000",
                        origin=topics_pb2.SETTING_ORIGIN_TOPIC,
                    )
                ],
            )
        ),
        "WatchTopic": [pb.WatchTopicResponse(records=[LETTER], synced=True)],
        "GetDeadLetterStates": pb.GetDeadLetterStatesResponse(topic="dead"),
        "GetClusterInfo": pb.GetClusterInfoResponse(
            version="1",
            group_id="drover",
            workers=[
                pb.WorkerInfo(
                    worker_id=WORKER,
                    leader=True,
                    connectors=[NAME],
                    tasks=[f"{NAME}-{number}" for number in range(9)],
                )
            ],
        ),
        "ListLoggers": pb.ListLoggersResponse(
            loggers=[pb.Logger(name="drover.connectors.jdbc", level="DEBUG")]
        ),
        "ValidateConfig": pb.ValidateConfigResponse(
            error_count=1,
            violations=[pb.ConfigViolation(field="config", description="must " + "be so " * 30)],
        ),
        "ListGroups": group_pb.ListGroupsResponse(
            groups=[
                group_pb.ListGroupsResponse.Group(
                    group_id="drover" * 10, state=group_pb.GROUP_STATE_STABLE, member_count=2
                )
            ]
        ),
        "DescribeGroup": group_pb.DescribeGroupResponse(
            group_id="drover",
            state=group_pb.GROUP_STATE_STABLE,
            members=[group_pb.GroupMember(member_id="m-1" * 10, client_host="10.0.0.1")],
        ),
        "FindCoordinator": group_pb.FindCoordinatorResponse(
            address=os.environ["DROVER_COORDINATOR_ADDRESS"]
        ),
    }


COMMANDS = [
    ("connector", "list"),
    ("connector", "get", NAME),
    ("connector", "status", NAME),
    ("connector", "describe", NAME),
    ("connector", "offsets", NAME),
    ("connector", "history", NAME),
    ("connector", "topics", NAME),
    ("plugin", "list"),
    ("plugin", "describe", CLASS),
    ("topic", "list"),
    ("topic", "describe", "orders"),
    ("topic", "head", "orders"),
    ("dlq", "list", NAME),
    ("cluster", "info"),
    ("worker", "list"),
    ("logger", "list"),
    ("group", "list"),
    ("group", "describe", "drover"),
    ("config", "validate", "-f", "c.json"),
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, drover: Run) -> Callable[..., list[str]]:
    """Runs a command at a terminal of a width; returns the lines."""

    def run(width: int, *command: str, **environment: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True)
            patch.setenv("COLUMNS", str(width))
            patch.setenv("TERM", "xterm")
            for name, value in environment.items():
                patch.setenv(name, value)
            return drover(*command)[1].splitlines()

    return run


@pytest.fixture(autouse=True)
def _definition(cluster: FakeCluster) -> None:
    Path("c.json").write_text(json.dumps({"name": NAME, "config": dict(CONNECTOR.config)}))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_word_is_broken_at_any_width(
    drover: Run, terminal: Callable[..., list[str]], command: tuple[str, ...]
) -> None:
    # a list leaves out the header of an empty cell
    piped = {word for word in drover(*command)[1].split() if not word.isupper()}
    for width in (60, 80, 200):
        lines = terminal(width, *command, NO_COLOR="1")
        assert piped <= {*" ".join(lines).split()}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_pipe_has_the_same_whole_lines_at_any_width(
    drover: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], columns: str
) -> None:
    wide = drover(*command)[1]
    monkeypatch.setenv("COLUMNS", columns)
    assert drover(*command)[1] == wide
    assert "\x1b" not in wide


def test_a_class_is_found_by_grep(drover: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = [each for each in drover("connector", "list")[1].splitlines() if CLASS in each]
    assert "1 FAILED" in line


def test_nothing_is_cut_in_a_pipe(
    cluster: FakeCluster, drover: Run, terminal: Callable[..., list[str]]
) -> None:
    record = TopicRecord(partition=0, offset=1, value=f'"{"x" * 1_000}"')
    cluster.answers["WatchTopic"] = [pb.WatchTopicResponse(records=[record], synced=True)]
    assert "x" * 1_000 in drover("topic", "head", "orders")[1]
    (line,) = terminal(80, "topic", "head", "orders")
    assert line.endswith("…")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_no_escape_codes_without_colour(
    terminal: Callable[..., list[str]], environment: dict[str, str]
) -> None:
    assert "\x1b" in "".join(terminal(200, "connector", "list"))
    assert "\x1b" not in "".join(terminal(200, "connector", "list", **environment))


def test_findings_and_refusals_break_no_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    found = "connector warehouse-orders-copy retries its writes since ten minutes ago"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    finding = Finding("worker-1", Level.ERROR, found, "look at its log")
    doctor.print_findings([finding], Output.TABLE)
    fault = Violation("transforms.mask.fields.of.the.orders", f"is {found}")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_refusal(InvalidArgumentError(Reason.INVALID_CONFIG, "1 fault", violations=[fault]))
    output = capsys.readouterr()
    assert {*found.split()} <= {*output.out.split()}
    assert {"transforms.mask.fields.of.the.orders", *found.split()} <= {*output.err.split()}
    assert max(map(len, output.out.splitlines())) <= 60


def process(*command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "drover.cli.main", *command],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_locale_without_unicode_is_no_error(cluster: FakeCluster) -> None:
    connector = pb.Connector(name="größe-日本")
    named = pb.ListConnectorsResponse.Entry(name=connector.name, connector=connector, status=STATUS)
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=[named])
    for environment in (
        {"PYTHONIOENCODING": "iso-8859-1"},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done = process("connector", "list", **environment)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\u65e5\\u672c" in done.stdout
        document = process("connector", "list", "-o", "json", **environment)
        assert json.loads(document.stdout)[0]["name"] == connector.name
        assert document.stdout.isascii()


def test_help_is_printed_in_a_locale_without_unicode() -> None:
    done = process("connector", "--help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")


def test_characters_that_an_encoding_lacks_become_escapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="iso-8859-1"))
    prepare_streams()
    sys.stdout.write("é … 日\n")
    sys.stdout.flush()
    assert raw.getvalue() == b"\xe9 ... \\u65e5\n"


@pytest.mark.parametrize(
    "text", ["a\x9b31m", "\u202e", "\u2028", "\U000e0001", "\ud800", "日 é 😀", "\x85"]
)
def test_documents_do_not_control_the_terminal(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for output in (Output.JSON, Output.YAML):
        if output is Output.YAML and text == "\ud800":
            continue
        print_document({text: [text]}, output)
        print_event({text: text}, output)
        printed = capsys.readouterr().out
        assert printed.replace("\n", "").isprintable()
        assert ("日" in printed) == ("日" in text)
    assert json.loads(json_text({text: [text]}, indent=2)) == {text: [text]}


def test_a_closed_pipe_is_no_error(cluster: FakeCluster) -> None:
    topics = [Topic(name=f"topic-{number}", partition_count=1) for number in range(20_000)]
    cluster.answers["ListTopics"] = pb.ListTopicsResponse(topics=topics)
    with subprocess.Popen(
        [sys.executable, "-m", "drover.cli.main", "topic", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().split() == [b"TOPIC", b"PARTITIONS"]
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 1


def test_a_full_disk_is_reported() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "drover.cli.main", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"drover: the output cannot be written: No space left on device\n"


def test_an_argument_in_another_encoding_is_reported() -> None:
    done = process("connector", "get", os.fsdecode(b"caf\xe9"))
    assert done.returncode == 2
    assert done.stderr.startswith(b"drover: an argument is not text in the encoding of this")


def test_a_real_terminal_gets_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    controller, terminal = pty.openpty()
    os.environ["TERM"] = "xterm"
    subprocess.run(["stty", "cols", "60"], stdin=terminal, check=True)
    subprocess.run(
        [sys.executable, "-m", "drover.cli.main", "connector", "list"],
        stdout=terminal,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=60,
        check=True,
    )
    os.close(terminal)
    lines = os.read(controller, 65_536).decode().splitlines()
    os.close(controller)
    assert lines[0].startswith("NAME  ")
    assert f"  CLASS  {CLASS}" in lines
    assert max(map(len, lines)) <= 60
