"""The history of a flow shows lines that are lost, doubled or reordered, and lower offsets."""

from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from simulation.history import main
from tests.support.histories import FlowHistory

INPUT = [b"line 0 a", b"line 1 bb", b"line 2 c"]


@pytest.fixture
def history(tmp_path: Path) -> FlowHistory:
    input_path = tmp_path / "in.txt"
    input_path.write_bytes(b"".join(line + b"\n" for line in INPUT))
    return FlowHistory("source", "sink", input_path, tmp_path / "history.jsonl")


def source_at(position_bytes: int) -> list[pb.ConnectorOffset]:
    offset = f'{{"position":{position_bytes}}}'
    return [pb.ConnectorOffset(partition_json='{"filename":"in.txt"}', offset_json=offset)]


def test_a_complete_output_keeps_the_guarantees(history: FlowHistory, tmp_path: Path) -> None:
    history.fetched("source", source_at(9))
    history.fetched("source", source_at(28))
    history.fetched("source", [pb.ConnectorOffset(partition_json="{}")])
    history.assert_kept("sink", INPUT)
    history.assert_kept("source", INPUT)
    assert main([str(tmp_path / "history.jsonl")]) == 0


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([INPUT[0], INPUT[2]], "did not find record 1"),
        ([*INPUT, INPUT[1]], "found record 1 twice"),
        ([INPUT[0], INPUT[2], INPUT[1]], "found record 1 after record 2"),
        ([INPUT[0], b"line 1 torn", INPUT[2]], "not in the input"),
        ([*INPUT, b"line 3 d"], "the input has 3"),
        ([*INPUT, b"li"], "not a line of the input"),
    ],
)
def test_a_wrong_output_is_named(history: FlowHistory, lines: list[bytes], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        history.assert_kept("sink", lines)


def test_committed_offsets_that_decrease_are_named(history: FlowHistory) -> None:
    history.fetched("source", source_at(19))
    history.fetched("source", source_at(9))
    with pytest.raises(
        AssertionError, match="1 of partition lines of source is committed, after 2"
    ):
        history.assert_kept("sink", INPUT)
