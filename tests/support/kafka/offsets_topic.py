"""The offsets that sources committed in the transactions of their records."""

import json
from collections.abc import Sequence

from drover.log.storage import KafkaStorage
from drover.model.offsets import CommittedOffset
from tests.support.kafka.clients import read_all


def committed_in_topic(storage: KafkaStorage, connector: str) -> Sequence[CommittedOffset]:
    """A connector's committed offsets, from the records of the offsets topic."""
    found: dict[str, str | None] = {}
    for record in read_all(storage.bootstrap_servers, storage.topics.offset):
        name, partition = json.loads(record.key or b"[null, null]")
        if name == connector:
            found[json.dumps(partition)] = record.value.decode() if record.value else None
    return [CommittedOffset(*each) for each in found.items()]
