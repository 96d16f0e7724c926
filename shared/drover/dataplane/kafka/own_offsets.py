"""Source offsets in a connector's own topic (KIP-618).

Kafka Connect writes this topic in the transactions of the records, and the workers' topic some time
later, so this topic takes precedence. Drover writes both in one transaction.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

from drover.dataplane.kafka.clients import shared_client
from drover.errors import UnavailableError
from drover.log.kafka.reader import read_to_end
from drover.log.kafka.records import EARLIEST
from drover.log.kafka.topics import ensure_topics, own_offset_topic
from drover.log.storage import KafkaStorage
from drover.model.offset_json import canonical_json, metadata_of
from drover.model.offsets import CommittedOffset
from drover.model.source_offsets import SourceOffsets, UnreadableOffsetError

#: How long to wait for the next record; a killed owner's transaction may stay open this long.
_SILENCE_S = 75.0


def read_own_offsets(storage: KafkaStorage, topic: str, connector: str) -> list[CommittedOffset]:
    """A connector's committed offsets in its own topic, up to the topic's end; blocks.

    Creates the topic if it is missing. Waits for open transactions.

    Raises:
        FailedPreconditionError: STORAGE_MISCONFIGURED, the topic has wrong settings or is not
            readable.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    return asyncio.run(_read(storage, topic, connector))


def joined(
    own: Sequence[CommittedOffset], shared: Sequence[CommittedOffset]
) -> list[CommittedOffset]:
    """The offsets of both topics; the connector's own topic takes precedence."""
    found = {canonical_json(each.partition_json): each for each in (*shared, *own)}
    return list(found.values())


async def _read(storage: KafkaStorage, topic: str, connector: str) -> list[CommittedOffset]:
    client = shared_client(storage)
    states = await ensure_topics(client, [own_offset_topic(storage, topic)])
    partitions = range(states[topic].partition_count)
    ends = await client.last_offsets(topic, partitions)
    offsets = SourceOffsets()
    read = read_to_end(
        *(client, topic, dict.fromkeys(partitions, EARLIEST)),
        at_least=ends,
        patience_s=_SILENCE_S,
    )
    try:
        async with aclosing(read) as batches:
            async for batch in batches:
                for record in batch.records:
                    with suppress(UnreadableOffsetError):
                        offsets.replay(
                            record.key,
                            record.value,
                            timestamp_ms=record.timestamp_ms,
                            metadata=metadata_of(record.headers),
                        )
    except UnavailableError as error:
        raise UnavailableError(
            error.reason,
            f"the topic {topic} of the offsets of {connector} could not be read to its end, a "
            f"transaction in it may still be open: {error.message}",
            metadata=error.metadata,
        ) from error
    return [offset for _, offset in offsets.of(connector)]
