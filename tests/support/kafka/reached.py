"""Checks for any login at a broker: logs, and topics of tasks."""

from collections.abc import Mapping

from drover.log.log import LogRecord
from drover.model.ids import Term
from tests.support.kafka.data_topic import Topic
from tests.support.kafka.following import Following
from tests.support.kafka.logs import LogOnKafka


async def assert_a_log_is_claimed_written_and_followed(
    bootstrap: str, prefix: str, settings: Mapping[str, str]
) -> None:
    """With the stores' clients and these settings."""
    async with LogOnKafka.opened(bootstrap, prefix, client_config=settings) as on_kafka:
        following = Following(on_kafka.log)
        epoch = await on_kafka.log.claim("w", Term(1, 1))
        await on_kafka.log.append([LogRecord(b"privileged", b"v")], epoch)
        await on_kafka.log.append([LogRecord(b"plain", b"v")])
        await following.brings([b"privileged", b"plain"])


def assert_tasks_write_and_read(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    """With the data plane's clients and these settings."""
    opened = Topic.at(bootstrap, topic, settings)
    opened.write({"value": [b"1", b"2"]}, partition_count=2, spread_keyless=True)
    assert sorted(opened.values(0, 1)) == [b"1", b"2"]
