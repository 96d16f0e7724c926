"""``drover topic …``: its requests, and how it shows records."""

import json
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.common.v1 import topics_pb2
from drover.api.common.v1.preview_pb2 import PreviewedHeader
from drover.api.common.v1.topics_pb2 import (
    PRODUCE_FORMAT_JSON,
    PartitionBounds,
    ProduceOptions,
    ReadPosition,
    Topic,
    TopicDescription,
    TopicRecord,
)
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.commands import topic
from drover.clock import SystemClock
from drover.model.times import DAY_MS
from tests.support.fake_cluster import FakeCluster, Run

RECORDS = [
    TopicRecord(
        partition=1,
        offset=7,
        record_time=Timestamp(seconds=1),
        key='"k"',
        value='{"a":1}',
        headers=[PreviewedHeader(key="h", value="v")],
    ),
    TopicRecord(partition=0, offset=8, value='"0x00"', error="ValueError: no", truncated=True),
    TopicRecord(partition=0, offset=9),
]


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    cluster.answers["WatchTopic"] = [
        pb.WatchTopicResponse(records=RECORDS, positions=[ReadPosition(partition=0, offset=10)]),
        pb.WatchTopicResponse(synced=True),
    ]
    cluster.answers["ListTopics"] = pb.ListTopicsResponse(
        topics=[Topic(name="t", partition_count=2)]
    )
    cluster.answers["DescribeTopic"] = pb.DescribeTopicResponse(
        topic=TopicDescription(
            name="t",
            partitions=[PartitionBounds(partition=0, start_offset=3, end_offset=9)],
            retention=Duration(seconds=60),
            config={"retention.ms": "60000", "retention.bytes": "-1", "segment.ms": "7"},
            settings=[
                topics_pb2.TopicSetting(name=name, value=value, origin=origin)
                for name, value, origin in (
                    ("retention.ms", "60000", topics_pb2.SETTING_ORIGIN_TOPIC),
                    ("retention.bytes", "-1", topics_pb2.SETTING_ORIGIN_COORDINATOR),
                    ("segment.ms", "7", topics_pb2.SETTING_ORIGIN_DEFAULT),
                )
            ],
        )
    )
    cluster.answers["GetTopicRecordCount"] = pb.GetTopicRecordCountResponse(
        record_count=3,
        scanned_count=9,
        complete=True,
        positions=[ReadPosition(partition=0, offset=12), ReadPosition(partition=1, offset=4)],
    )


def test_a_record_is_a_line(drover: Run) -> None:
    code, out, _ = drover("topic", "head", "t")
    assert code == 0
    assert out.splitlines() == [
        '1:7  1970-01-01T00:00:01.000Z  "k"  {"a":1}  [h=v]',
        '0:8  "0x00"  (not decoded: ValueError: no)',
        "0:9  null",
    ]


def test_for_machines_a_record_is_a_line_of_json(drover: Run) -> None:
    _, out, _ = drover("topic", "tail", "t", "-o", "json")
    first, second, third = (json.loads(line) for line in out.splitlines())
    assert first == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": "1970-01-01T00:00:01.000Z",
        "key": "k",
        "value": {"a": 1},
        "headers": [{"key": "h", "value": "v"}],
    }
    assert (second["error"], second["truncated"]) == ("ValueError: no", True)
    assert (third["value"], third["timestamp"]) == (None, None)


def test_the_options_say_what_is_asked(cluster: FakeCluster, drover: Run) -> None:
    options = [
        *("-n", "3", "-p", "1", "-p", "2", "--value", "avro", "--key", "hex", "-c", "sink"),
        *("--set", "value.converter.a=b=c", "-w", "x>1", "-w", "y=2", "-s", "x"),
    ]
    drover("topic", "tail", "t", *options)
    (request,) = cluster.requests
    query = request.query
    assert (query.topic, list(query.partitions), request.connector) == ("t", [1, 2], "sink")
    assert (query.value_converter, query.key_converter) == ("avro", "hex")
    assert dict(query.config) == {"value.converter.a": "b=c"}
    assert (list(query.conditions), list(query.paths)) == (["x>1", "y=2"], ["x"])
    assert (request.last_count, request.record_count_max, request.follow) == (3, 0, False)
    drover("topic", "head", "t", "-n", "4", "--from", "9")
    assert (cluster.requests[1].start_offset, cluster.requests[1].record_count_max) == (9, 4)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00.250+02:00", "2026-01-31T10:00:00.250Z"),
        ("2026-01-31 12:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        # records have milliseconds
        ("2026-01-31T12:00:00.0001Z", "2026-01-31T12:00:00.001Z"),
        ("1970-01-01", "1970-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("99999999999999d", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_read_starts_since_a_time(
    cluster: FakeCluster, drover: Run, text: str, time: str
) -> None:
    drover("topic", "head", "t", "-n", "4", "--since", text)
    drover("topic", "tail", "t", "--since", text)
    head, tail = cluster.requests
    assert head.start_time.ToJsonString() == tail.start_time.ToJsonString() == time
    assert (head.record_count_max, tail.record_count_max) == (4, 0)
    assert (tail.last_count, tail.follow) == (0, False)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("2h ago", 7_200_000), ("1w", 7 * DAY_MS)],
)
def test_a_duration_is_before_now(
    cluster: FakeCluster, drover: Run, text: str, span_ms: int
) -> None:
    earliest_ms = SystemClock().now_ms()
    drover("topic", "head", "t", "--since", text)
    (request,) = cluster.requests
    found_ms = request.start_time.ToMilliseconds() + span_ms
    assert earliest_ms <= found_ms <= SystemClock().now_ms()


@pytest.mark.parametrize(
    "text", ["yesterday", "15", "-15m", "1.5h", "15 m", "2026-02-30", "1769860800000", "1969-12-31"]
)
def test_a_start_that_is_no_time_is_misuse(cluster: FakeCluster, drover: Run, text: str) -> None:
    code, _, err = drover("topic", "head", "t", f"--since={text}")
    assert code == 2
    assert "2026-01-31T12:00:00Z" in err
    assert not cluster.requests


@pytest.mark.parametrize("options", [("head", "--from", "0"), ("tail", "-n", "3")])
def test_a_read_has_one_start(cluster: FakeCluster, drover: Run, options: tuple[str, ...]) -> None:
    command, *others = options
    code, _, err = drover("topic", command, "t", "--since", "15m", *others)
    assert code == 2
    assert "not both" in err
    assert not cluster.requests


def test_a_topic_that_is_gone_ends_the_following(drover: Run) -> None:
    code, out, err = drover("topic", "tail", "t", "--follow")
    assert code == 1
    assert len(out.splitlines()) == 3
    assert "gone" in err


def test_topics_are_listed_described_and_counted(drover: Run) -> None:
    _, out, _ = drover("topic", "list")
    assert out.split() == ["TOPIC", "PARTITIONS", "t", "2"]
    _, out, _ = drover("topic", "describe", "t")
    assert "3" in out.splitlines()[1].split()
    assert "retention.ms: 60000, 0:01:00 (set for the topic)" in out
    expected = "retention.bytes: -1, no limit (the coordinator's DROVER_TOPIC_RETENTION_BYTES)"
    assert expected in " ".join(out.split())
    assert "segment.ms" not in out
    _, out, _ = drover("topic", "describe", "t", "-o", "json")
    assert json.loads(out)["retention_ms"] == 60_000
    assert drover("topic", "count", "t", "-w", "a=1") == (0, "3\n", "")
    _, out, _ = drover("topic", "count", "t", "-o", "json")
    assert json.loads(out) == {"topic": "t", "records": 3, "complete": True, "scanned": 9}
    assert drover("topic", "count", "t", "--offsets")[1] == "3 offsets\n"


def test_for_machines_numbers_keep_their_values(drover: Run, cluster: FakeCluster) -> None:
    values = ['{"a":1.25,"b":5.00}', "0.10000000000000000001", "1e400", str(2**80), "1e2"]
    records = [TopicRecord(value=each) for each in values]
    cluster.answers["WatchTopic"] = [pb.WatchTopicResponse(records=records, synced=True)]
    _, out, _ = drover("topic", "head", "t", "-o", "json")
    assert [json.loads(line)["value"] for line in out.splitlines()] == [
        {"a": 1.25, "b": 5}, "0.10000000000000000001", "1e400", 2**80, 100,
    ]  # fmt: skip


def test_a_count_that_the_deadline_ended_is_no_total(drover: Run, cluster: FakeCluster) -> None:
    cluster.answers["GetTopicRecordCount"].complete = False
    code, out, err = drover("topic", "count", "t", "-w", "a=1", "--timeout", "2")
    assert (code, out) == (3, "at least 3\n")
    assert "counted up to offset 0:12, 1:4 when the deadline of 2 s came" in err


def test_a_setting_without_a_value_is_misuse(drover: Run) -> None:
    code, _, err = drover("topic", "head", "t", "--set", "a")
    assert (code, "NAME=VALUE" in err) == (1, True)


def test_records_of_a_file_are_produced(drover: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.answers["ProduceRecords"] = pb.ProduceRecordsResponse(record_count=2)
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'{"value":1}\n{"value":2}\n')
    options = ("--value", "json", "--set", "value.converter.a=b", "--request-id", "one")
    assert drover("topic", "produce", "t", str(file), *options) == (
        0,
        "2 records written to t\n",
        "",
    )
    (request,) = cluster.requests
    assert request.options == ProduceOptions(
        topic="t",
        format=PRODUCE_FORMAT_JSON,
        value_converter="json",
        config={"value.converter.a": "b"},
        request_id="one",
    )
    assert request.data == file.read_bytes()
    cluster.answers["ProduceRecords"].repeated_call = True
    _, out, _ = drover("topic", "produce", "t", str(file), "--format", "lines")
    assert out == "2 records were already written to t\n"
    _, out, _ = drover("topic", "produce", "t", str(file), "-o", "json")
    assert json.loads(out) == {"topic": "t", "records": 2, "repeated_call": True}


def test_an_input_that_cannot_be_read_or_is_too_large_is_misuse(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = drover("topic", "produce", "t", str(tmp_path / "gone"))
    assert (code, "cannot be read: No such file" in err) == (1, True)
    monkeypatch.setattr(topic, "INPUT_BYTES_MAX", 3)
    (tmp_path / "in").write_bytes(b"1234")
    code, _, err = drover("topic", "produce", "t", str(tmp_path / "in"))
    assert (code, "more than 3 bytes" in err) == (1, True)


def test_the_progress_of_a_long_input_is_on_stderr(
    drover: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.answers["ProduceRecords"] = pb.ProduceRecordsResponse(record_count=1)
    (tmp_path / "in").write_bytes(b"x" * (17 << 20))
    _, out, err = drover("topic", "produce", "t", str(tmp_path / "in"), "--format", "lines")
    assert out == "1 record written to t\n"
    assert err.splitlines() == [f"sent {each} of 17 MiB" for each in (8, 16, 17)]


def test_the_retention_of_an_earlier_versions_worker_is_shown(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["DescribeTopic"] = pb.DescribeTopicResponse(
        topic=TopicDescription(name="t", retention=Duration(seconds=7 * 86_400))
    )
    _, out, _ = drover("topic", "describe", "t")
    assert "retention: 7 days\n" in out
