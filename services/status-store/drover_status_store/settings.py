"""Settings of the status store."""

from drover.rpc.settings import ListenAddress, ServiceSettings


class StatusStoreSettings(ServiceSettings):
    """From the environment: DROVER_STATUS_STORE_LISTEN and the settings of every service."""

    status_store_listen: ListenAddress = "127.0.0.1:7403"
