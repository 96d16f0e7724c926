"""AvroConverter's own settings, as Confluent's converter has them."""

from drover.config.config_def import ConfigDef
from drover.convert.registered.settings import flag, registry_settings
from drover.convert.registered.sum_types import SUM_TYPES_KEY
from drover.convert.settings import CONVERTER_TYPE

AVRO_SETTINGS = registry_settings("avro") | ConfigDef(
    flag(
        "connect.meta.data",
        True,
        "Whether schemas have properties for what Avro has no word for (connect.name, ...).",
    ),
    flag(
        "enhanced.avro.schema.support",
        False,
        "Whether texts that were an enum in Avro become one again.",
    ),
    SUM_TYPES_KEY,
    flag(
        "ignore.default.for.nullables",
        False,
        "Whether null is written as null though its schema has a default.",
    ),
    CONVERTER_TYPE,
)
