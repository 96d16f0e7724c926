"""Runs the status store: ``python -m drover_status_store``."""

import asyncio

from drover.log.kafka.topics import status_topic
from drover.rpc.log_service import serve_log
from drover.rpc.service import run_service
from drover.rpc.topic_service import TopicPlace
from drover_status_store.server import SERVICE, wire
from drover_status_store.settings import StatusStoreSettings

TOPIC = TopicPlace(status_topic)


async def serve(settings: StatusStoreSettings, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set."""
    await serve_log(
        name=SERVICE,
        storage=settings.storage(),
        file_name="status.db",
        topic=TOPIC,
        listen=settings.status_store_listen,
        metrics_listen=settings.metrics_listen,
        security=settings.open_security(),
        stopping=stopping,
        wire=wire,
    )


if __name__ == "__main__":
    run_service(SERVICE, StatusStoreSettings, serve)
