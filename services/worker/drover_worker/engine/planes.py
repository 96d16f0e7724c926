"""Opens the data plane of an engine's storage."""

from pathlib import Path

from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import DataPlane
from drover.log.storage import EmbeddedStorage
from drover_worker.engine.settings import EngineSettings, is_local_master

#: In the engine's temporary directory, which is removed when the engine ends.
STAGING_DIRECTORY = "staged"


def open_plane(settings: EngineSettings, temporary: Path) -> DataPlane:
    """The plane; ``temporary`` is the engine's directory for temporary files.

    Raises:
        DroverError: The storage is not ready.
    """
    storage = settings.storage
    if isinstance(storage, EmbeddedStorage):
        return EmbeddedPlane.open(storage.directory)
    # embedded storage does not need this import, which takes a quarter of a second
    from drover.dataplane.kafka.plane import KafkaPlane

    staging = None if settings.not_exactly_once else temporary / STAGING_DIRECTORY
    return KafkaPlane(
        storage,
        staging_directory=staging,
        executors_share_files=is_local_master(settings.spark_master),
    )
