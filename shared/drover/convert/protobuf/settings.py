"""ProtobufConverter's own settings, as Confluent's converter has them."""

from drover.config.config_def import ConfigDef
from drover.convert.protobuf.descriptors import COMPILER
from drover.convert.registered.settings import flag, registry_settings
from drover.convert.registered.sum_types import SUM_TYPES_KEY
from drover.convert.settings import CONVERTER_TYPE

PROTOBUF_SETTINGS = registry_settings("protobuf", COMPILER) | ConfigDef(
    flag(
        "enhanced.protobuf.schema.support",
        False,
        "Whether schemas have the names of messages with their package.",
    ),
    flag("int.for.enums", False, "Whether enums are numbers; else they are the texts of symbols."),
    flag(
        "optional.for.nullables",
        False,
        "Whether fields that may be null are optional ones of Protobuf, so that null is not 0.",
    ),
    flag(
        "wrapper.for.nullables",
        False,
        "Whether fields that may be null are messages of google.protobuf (StringValue, ...), so "
        "that null is not 0.",
    ),
    flag(
        "scrub.invalid.names",
        False,
        "Whether signs become _ that names in Protobuf cannot have; else they are an error.",
    ),
    SUM_TYPES_KEY,
    CONVERTER_TYPE,
)
