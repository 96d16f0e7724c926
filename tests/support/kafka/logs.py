"""Logs in the tests' own topics."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from drover.clock import Clock, SystemClock
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.kafka.log import KafkaLog, KafkaLogSpec
from drover.log.kafka.topics import TopicSpec, config_topic, ensure_topics
from drover.log.storage import KafkaStorage, KafkaTopics

#: For calls without a response; calls that must succeed have a long timeout.
IMPATIENT_S = 2.0


@contextmanager
def impatient(client: KafkaClient, timeout_s: float = IMPATIENT_S) -> Iterator[None]:
    """Give the client a short timeout for the block."""
    patience_s, client.timeout_s = client.timeout_s, timeout_s
    try:
        yield
    finally:
        client.timeout_s = patience_s


def storage_on(
    bootstrap: str, prefix: str, client_config: Mapping[str, str] | None = None
) -> KafkaStorage:
    """A cluster's storage whose names start with ``prefix``."""
    return KafkaStorage(
        bootstrap_servers=bootstrap,
        group_id=f"{prefix}cluster",
        topics=KafkaTopics(
            config=f"{prefix}configs",
            offset=f"{prefix}offsets",
            status=f"{prefix}statuses",
            control=f"{prefix}control",
        ),
        client_config=client_config or {},
    )


@dataclass
class LogOnKafka:
    """A process's access to a log in the config topic; several with one prefix share it."""

    client: KafkaClient
    control: ControlTopic
    clock: Clock
    spec: KafkaLogSpec
    logs: list[KafkaLog] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        bootstrap: str,
        prefix: str,
        clock: Clock | None = None,
        *,
        spec: KafkaLogSpec | None = None,
        client_config: Mapping[str, str] | None = None,
        topics: Sequence[TopicSpec] | None = None,
        timeout_s: float = 30.0,
    ) -> AsyncIterator["LogOnKafka"]:
        """Create missing topics, and open the log."""
        storage = storage_on(bootstrap, prefix, client_config)
        client = KafkaClient(storage, timeout_s=timeout_s)
        spec = spec or KafkaLogSpec(
            topic=storage.topics.config, transactional_id=f"connect-cluster-{storage.group_id}"
        )
        await ensure_topics(client, topics or [config_topic(storage)])
        control = await ControlTopic.open(client)
        on_kafka = cls(client, control, clock or SystemClock(), spec)
        try:
            await on_kafka.open()
            yield on_kafka
        finally:
            for log in on_kafka.logs:
                await log.close()
            await control.close()
            await client.close()

    @property
    def log(self) -> KafkaLog:
        """The last opened log."""
        return self.logs[-1]

    async def open(self) -> KafkaLog:
        """Open the log another time."""
        self.logs.append(await KafkaLog.open(self.client, self.control, self.spec, self.clock))
        return self.log
