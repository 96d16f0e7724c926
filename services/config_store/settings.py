"""Settings of the config store."""

from drover.rpc.settings import ListenAddress, ServiceSettings


class ConfigStoreSettings(ServiceSettings):
    """From the environment: DROVER_CONFIG_STORE_LISTEN and what every service reads."""

    config_store_listen: ListenAddress = "127.0.0.1:7402"
