"""``drover connector offsets`` and ``patch``."""

import io
import json
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.clock import SystemClock
from drover.errors import FailedPreconditionError, Reason
from tests.support.fake_cluster import FakeCluster, Run

FOUND = pb.GetConnectorOffsetsResponse(
    offsets=[
        pb.ConnectorOffset(partition_json='{"filename":"/ä"}', offset_json='{"position":7}'),
        pb.ConnectorOffset(
            partition_json='{"kafka_topic":"t","kafka_partition":0}',
            offset_json='{"kafka_offset":42}',
        ),
    ]
)


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    cluster.answers["GetConnectorOffsets"] = FOUND
    cluster.answers["AlterConnectorOffsets"] = pb.AlterConnectorOffsetsResponse(message="2 changed")
    cluster.answers["ResetConnectorOffsets"] = pb.ResetConnectorOffsetsResponse(message="all gone")
    cluster.answers["PatchConnectorConfig"] = pb.PatchConnectorConfigResponse(
        connector=pb.Connector(name="c", revision=12, config={"topic": "b"})
    )


def test_offsets_are_shown_as_a_table_and_as_kafka_connect_shows_them(drover: Run) -> None:
    code, out, _ = drover("connector", "offsets", "c")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["PARTITION", "OFFSET"],
        ["filename=/ä", "position=7"],
        ["kafka_topic=t", "kafka_partition=0", "kafka_offset=42"],
    ]
    _, out, _ = drover("connector", "offsets", "c", "-o", "json")
    assert json.loads(out)["offsets"][0] == {
        "partition": {"filename": "/ä"},
        "offset": {"position": 7},
    }


def test_a_sinks_offsets_have_ends_and_lags_which_a_file_may_keep(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    places = ['{"kafka_topic":"t","kafka_partition":0}', '{"kafka_topic":"t","kafka_partition":1}']
    known, unknown = (
        pb.ConnectorOffset(partition_json=place, offset_json='{"kafka_offset":42}')
        for place in places
    )
    known.end_offset, known.lag = 50, 8
    cluster.answers["GetConnectorOffsets"] = pb.GetConnectorOffsetsResponse(
        offsets=[known, unknown]
    )
    _, out, _ = drover("connector", "offsets", "c")
    assert [line.split() for line in out.splitlines()] == [
        ["PARTITION", "OFFSET", "END", "LAG"],
        ["kafka_topic=t", "kafka_partition=0", "kafka_offset=42", "50", "8"],
        ["kafka_topic=t", "kafka_partition=1", "kafka_offset=42", "-", "-"],
        ["total", "8"],
    ]
    _, shown, _ = drover("connector", "offsets", "c", "-o", "json")
    first, second = json.loads(shown)["offsets"]
    assert (first["end_offset"], first["lag"]) == (50, 8)
    assert second.keys() == {"partition", "offset"}
    file = tmp_path / "offsets.json"
    file.write_text(shown)
    assert drover("connector", "offsets", "c", "-f", str(file))[0] == 0
    known.ClearField("end_offset")
    known.ClearField("lag")
    assert cluster.requests[-1] == pb.AlterConnectorOffsetsRequest(
        name="c", offsets=[known, unknown]
    )


def test_a_file_of_what_was_shown_changes_offsets(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    _, shown, _ = drover("connector", "offsets", "c", "-o", "json")
    file = tmp_path / "offsets.json"
    file.write_text(shown)
    code, out, _ = drover("connector", "offsets", "c", "-f", str(file))
    assert (code, out) == (0, "c: 2 changed\n")
    assert cluster.requests[-1] == pb.AlterConnectorOffsetsRequest(name="c", offsets=FOUND.offsets)


def test_offsets_come_from_yaml_on_standard_input_too(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "offsets:\n- partition: {filename: /a}\n  offset: null\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out, _ = drover("connector", "offsets", "c", "-f", "-", "-o", "json")
    assert (code, json.loads(out)) == (0, {"name": "c", "message": "2 changed"})
    assert cluster.requests[-1] == pb.AlterConnectorOffsetsRequest(
        name="c", offsets=[pb.ConnectorOffset(partition_json='{"filename":"/a"}')]
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", '"offsets"'),
        ("offsets:\n- &a {partition: {}, offset: null}\n- *a\n", "has an alias"),
        ("{", "offsets.json"),
        ("[1]", '"offsets"'),
        ('{"offsets": 1}', '"offsets"'),
        ('{"offsets": [1]}', "offsets[0]"),
        ('{"offsets": [{"partition": {}}]}', '"offset"'),
        ('{"offsets": [{"partition": {}, "offset": {}, "more": 1}]}', "offsets[0]"),
        ("offsets: [{partition: {day: 2026-01-01}, offset: {}}]", "offsets[0] is not JSON"),
        ('{"offsets": [{"partition": {}, "offset": {"a": NaN}}]}', "offsets[0] is not JSON"),
    ],
)
def test_what_is_no_file_of_offsets_is_told_and_sent_nowhere(
    cluster: FakeCluster, drover: Run, tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(text)
    code, _, err = drover("connector", "offsets", "c", "-f", str(file))
    assert code != 0
    assert told in err
    assert not cluster.requests


def test_a_reset_asks_first(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert drover("connector", "offsets", "c", "--reset")[0] != 0
    assert not cluster.requests
    code, out, _ = drover("connector", "offsets", "c", "--reset", "--yes")
    assert (code, out) == (0, "c: all gone\n")
    assert cluster.requests == [pb.ResetConnectorOffsetsRequest(name="c")]


def test_a_reset_and_a_file_contradict_each_other(cluster: FakeCluster, drover: Run) -> None:
    code, _, err = drover("connector", "offsets", "c", "--reset", "-f", "x")
    assert code != 0
    assert "not both" in err
    assert not cluster.requests


def move(partition: int, before: int | None, after: int | None, **more: bool) -> pb.FoundOffset:
    place = f'{{"kafka_topic":"t","kafka_partition":{partition}}}'
    texts = [None if each is None else f'{{"kafka_offset":{each}}}' for each in (before, after)]
    found = pb.ConnectorOffset(partition_json=place, offset_json=texts[1])
    return pb.FoundOffset(found=found, committed_offset_json=texts[0], **more)


MOVES = [
    move(0, 1_042, 42),
    move(1, 7, 9),
    move(2, 5, 5, is_end=True),
    move(3, None, 4, is_end=True),
    move(4, 3, None),
]


def test_a_move_to_a_time_shows_the_difference_and_asks(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.answers["FindConnectorOffsets"] = pb.FindConnectorOffsetsResponse(offsets=MOVES)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    time = "2026-01-31T12:00:00.5+01:00"
    code, out, _ = drover("connector", "offsets", "c", "--to-time", time)
    assert code != 0
    end = "; the end: no record is at or after the time"
    assert [line.split("  ")[-1].strip() for line in out.strip().splitlines()] == [
        "CHANGE",
        "back, repeats 1,000",
        "ahead, skips 2",
        f"none{end}",
        f"new{end}",
        "not written: the partition does not exist",
    ]
    (request,) = cluster.requests
    assert request.name == "c"
    assert request.start_time.ToJsonString() == "2026-01-31T11:00:00.500Z"
    code, out, _ = drover("connector", "offsets", "c", "--to-time", time, "--yes", "-o", "json")
    assert code == 0
    document = json.loads(out)
    assert (document["name"], document["message"]) == ("c", "2 changed")
    assert document["offsets"][4] == {
        "partition": {"kafka_topic": "t", "kafka_partition": 4},
        "committed_offset": {"kafka_offset": 3},
        "offset": None,
        "is_end": False,
    }
    assert cluster.requests[-1] == pb.AlterConnectorOffsetsRequest(
        name="c", offsets=[MOVES[at].found for at in (0, 1, 3)]
    )


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31 12:00", "2026-01-31T12:00:00Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        ("2026-01-31T12:00:00+05:30", "2026-01-31T06:30:00Z"),
        ("2026-01-31T12:00:00-03:30", "2026-01-31T15:30:00Z"),
        ("2026-01-31T12:00:00.123+05:45", "2026-01-31T06:15:00.123Z"),
    ],
)
def test_a_time_has_any_zone_also_one_with_minutes(
    cluster: FakeCluster, drover: Run, text: str, sent: str
) -> None:
    cluster.answers["FindConnectorOffsets"] = pb.FindConnectorOffsetsResponse()
    code, out, _ = drover("connector", "offsets", "c", "--to-time", text, "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "c: nothing to change")
    assert cluster.requests[-1].start_time.ToJsonString() == sent


def test_a_move_to_a_duration_before_now_is_only_shown_with_dry_run(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["FindConnectorOffsets"] = pb.FindConnectorOffsetsResponse(offsets=MOVES)
    code, out, _ = drover("connector", "offsets", "c", "--to-time", "1d", "--dry-run")
    assert code == 0
    assert out.endswith("c: nothing was written\n")
    (request,) = cluster.requests
    assert abs(SystemClock().now_ms() - 86_400_000 - request.start_time.ToMilliseconds()) < 60_000


def test_a_move_that_changes_nothing_writes_nothing(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["FindConnectorOffsets"] = pb.FindConnectorOffsetsResponse(offsets=MOVES[2:3])
    code, out, _ = drover("connector", "offsets", "c", "--to-time", "1h")
    assert (code, out.splitlines()[-1]) == (0, "c: nothing to change")
    assert len(cluster.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to-time", "yesterday"], "--to-time must be a time"),
        (["--to-time", "1h", "--reset"], "not both"),
        (["--dry-run"], "--dry-run belongs to --to-time"),
    ],
)
def test_a_move_needs_a_time_alone(
    cluster: FakeCluster, drover: Run, arguments: list[str], told: str
) -> None:
    code, _, err = drover("connector", "offsets", "c", *arguments)
    assert code != 0
    assert told in err
    assert not cluster.requests


def test_what_prevents_a_change_is_told(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ResetConnectorOffsets"] = FailedPreconditionError(
        Reason.CONNECTOR_NOT_STOPPED, "connector 'c' is not stopped: stop it first"
    )
    code, _, err = drover("connector", "offsets", "c", "--reset", "-y")
    assert code != 0
    assert "stop it first" in err


def test_patch_sends_what_to_write_and_what_to_remove(cluster: FakeCluster, drover: Run) -> None:
    code, out, _ = drover(
        "connector", "patch", "c", "topic=b", "query=a=b", "--remove", "old", "-r", "older"
    )
    assert (code, out) == (0, "patched c: its config is now version 12\n")
    request = cluster.requests[0]
    assert dict(request.set) == {"topic": "b", "query": "a=b"}
    assert list(request.remove) == ["old", "older"]
    assert request.request_id


@pytest.mark.parametrize("arguments", [["topic"], ["=b"], ["topic=a", "topic=b"]])
def test_patch_takes_each_setting_once_with_its_value(
    cluster: FakeCluster, drover: Run, arguments: list[str]
) -> None:
    assert drover("connector", "patch", "c", *arguments)[0] != 0
    assert not cluster.requests
