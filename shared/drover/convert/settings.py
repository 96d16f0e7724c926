"""Settings that all of Kafka Connect's converters have."""

from drover.config.config_def import ConfigKey, ConfigType, Importance
from drover.config.validators import OneOf

#: Kafka Connect sets it itself, and accepts it in configs; here it is known from the setting.
CONVERTER_TYPE = ConfigKey(
    "converter.type",
    ConfigType.STRING,
    default=None,
    importance=Importance.LOW,
    validator=OneOf("key", "value", "header"),
    documentation="Accepted for Kafka Connect's sake; it has no effect.",
)
