"""Settings of the config store."""

from typing import Annotated

from pydantic import Field

from drover.rpc.settings import ListenAddress, ServiceSettings
from drover_config_store.core.connector_history import VERSIONS_MAX_DEFAULT


class ConfigStoreSettings(ServiceSettings):
    """What the config store is told, beside what every service reads.

    Attributes:
        config_store_listen: Where it listens.
        config_history_versions: How many configs and removals of each connector are kept in its
            history, and as many target states and restarts.
    """

    config_store_listen: ListenAddress = "127.0.0.1:7402"
    config_history_versions: Annotated[int, Field(ge=1, le=1_000)] = VERSIONS_MAX_DEFAULT
