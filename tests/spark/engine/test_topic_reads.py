"""A real engine answers topic queries before Spark has started; errors are passed on unchanged."""

import json

import pytest

from drover.api.common.v1.topics_pb2 import RecordQuery
from drover.api.engine.v1 import engine_pb2
from drover.errors import NotFoundError, Reason
from drover.rpc.status import from_rpc_status
from tests.spark.engine.harness import Harness
from tests.support.stored_topics import store_records

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def test_topics_are_read_without_spark(starting_engine: Harness) -> None:
    store_records(starting_engine.store, "looked-at", [{"value": b'{"a":1}'}])
    wanted = engine_pb2.ReadTopic(query=RecordQuery(topic="looked-at", conditions=["a=1"]))
    found = (await starting_engine.call(read_topic=wanted)).topic_records
    assert [json.loads(each.value) for each in found.records] == [{"a": 1}]
    listed = await starting_engine.call(list_topics=engine_pb2.ListTopics(count_max=1_000))
    assert "looked-at" in [each.name for each in listed.topics.topics]
    described = await starting_engine.call(
        describe_topic=engine_pb2.DescribeTopic(topic="not-there")
    )
    error = from_rpc_status(described.failure.status)
    assert isinstance(error, NotFoundError)
    assert error.reason is Reason.TOPIC_NOT_FOUND
