"""Runs the config store: ``python -m services.config_store``."""

import asyncio

from drover.rpc.log_service import serve_log
from drover.rpc.service import run_service
from services.config_store.server import SERVICE, wire
from services.config_store.settings import ConfigStoreSettings


async def serve(settings: ConfigStoreSettings, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set."""
    await serve_log(
        name=SERVICE,
        storage_url=settings.storage_url,
        file_name="config.db",
        listen=settings.config_store_listen,
        stopping=stopping,
        wire=wire,
    )


if __name__ == "__main__":
    run_service(SERVICE, ConfigStoreSettings, serve)
