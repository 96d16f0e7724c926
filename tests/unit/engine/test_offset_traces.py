"""How far the output of a sink was written, for topic partitions without a committed offset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.config.plugin_modules import MODULES_VARIABLE
from drover.connector import TopicPartition
from drover.connector.catalogue import PluginRegistry
from drover.connector.offsets import parse_sink_offsets
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.store import EmbeddedStore
from drover.model.offsets import CommittedOffset
from drover.model.sink_offsets import sink_offset
from drover.model.sink_outputs import OutputMark, SinkMetadata, SinkOutput, encode_mark
from drover_worker.engine.tasks.offset_traces import TracedOffsets, trace_offsets
from tests.unit.engine.runner_world import WriterSink

NAME = f"{__name__}.TracedSink"


class TracedSink(WriterSink):
    """Its output goes up to the number of characters of the topic's name."""

    asked: Mapping[TopicPartition, str] = {}
    fails = False

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        assert connector == config["name"] == "sink"
        if cls.fails:
            raise ConnectionError("the store does not respond")
        cls.asked = partitions
        return {key: len(key.topic) for key in partitions if key.partition == 0}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedStore:
    monkeypatch.setenv(MODULES_VARIABLE, "tests")
    store = EmbeddedStore(tmp_path / "data.db")
    store.ensure_topic("aa", 2)
    store.ensure_topic("bbb", 1)
    return store


def traced(store: EmbeddedStore, *committed: CommittedOffset, **config: str) -> TracedOffsets:
    full = {"name": "sink", "connector.class": NAME, **config}
    return trace_offsets(PluginRegistry(), EmbeddedPlane(store), full, committed)


@pytest.mark.parametrize("config", [{"topics": "aa,bbb,none"}, {"topics.regex": "a+|b+"}], ids=str)
def test_partitions_without_a_committed_offset_are_traced(
    store: EmbeddedStore, config: dict[str, str]
) -> None:
    metadata = SinkMetadata("m", SinkOutput(store.topic_ids()["bbb"])).text
    committed = sink_offset(TopicPartition("bbb", 0), 1, metadata)
    found = traced(store, committed, **config)
    assert {key: each.offset for key, each in parse_sink_offsets(found.offsets).items()} == {
        TopicPartition("aa", 0): 2
    }
    assert not found.untraced
    assert TracedSink.asked == {TopicPartition("aa", 0): "", TopicPartition("aa", 1): ""}


def test_lost_offsets_that_the_output_does_not_show_are_named(store: EmbeddedStore) -> None:
    lost = OutputMark(SinkOutput(store.topic_ids()["aa"], "0a1b2c3d"), 7)
    marks = [sink_offset(TopicPartition("aa", each), None, encode_mark(lost)) for each in (0, 1)]
    found = traced(store, *marks, topics="aa")
    assert found.untraced == [TopicPartition("aa", 1)]
    assert set(TracedSink.asked.values()) == {"0a1b2c3d"}


def test_offsets_of_a_deleted_topic_are_not_lost(store: EmbeddedStore) -> None:
    old = OutputMark(SinkOutput("deleted"), 7)
    mark = sink_offset(TopicPartition("aa", 1), None, encode_mark(old))
    assert not traced(store, mark, topics="aa").untraced
    assert TracedSink.asked[TopicPartition("aa", 1)]


def test_an_output_that_cannot_be_read_is_an_error(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TracedSink, "fails", True)
    with pytest.raises(ConnectionError, match="does not respond"):
        traced(store, topics="aa")
