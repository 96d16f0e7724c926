"""Settings of the config store."""

from typing import Annotated

from pydantic import Field

from drover.rpc.settings import ListenAddress, ServiceSettings
from drover_config_store.core.connector_history import VERSIONS_MAX_DEFAULT


class ConfigStoreSettings(ServiceSettings):
    """Settings of the config store, in addition to the settings of every service.

    Attributes:
        config_store_listen: The address to listen on, host:port.
        config_history_versions: How many configs and removals of each connector its history
            keeps, and how many target states and restarts.
    """

    config_store_listen: ListenAddress = "127.0.0.1:7402"
    config_history_versions: Annotated[int, Field(ge=1, le=1_000)] = VERSIONS_MAX_DEFAULT
