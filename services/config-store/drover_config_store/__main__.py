"""Runs the config store: ``python -m drover_config_store``."""

import asyncio
from functools import partial

from drover.log.kafka.topics import config_topic
from drover.rpc.log_service import serve_log
from drover.rpc.service import run_service
from drover.rpc.topic_service import TopicPlace
from drover_config_store.server import SERVICE, wire
from drover_config_store.settings import ConfigStoreSettings

#: Drover uses the transactional id of Kafka Connect's leader, so that they fence each other.
TOPIC = TopicPlace(config_topic, lambda storage: f"connect-cluster-{storage.group_id}")


async def serve(settings: ConfigStoreSettings, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set."""
    await serve_log(
        name=SERVICE,
        storage=settings.storage(),
        file_name="config.db",
        topic=TOPIC,
        listen=settings.config_store_listen,
        metrics_listen=settings.metrics_listen,
        security=settings.open_security(),
        stopping=stopping,
        wire=partial(wire, versions_max=settings.config_history_versions),
    )


if __name__ == "__main__":
    run_service(SERVICE, ConfigStoreSettings, serve)
