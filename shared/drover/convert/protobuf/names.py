"""Names used by Confluent's Protobuf converter, and names of well-known messages."""

import re
from types import MappingProxyType

NAMESPACE = "io.confluent.connect.protobuf"
#: Parameters of schemas: a field's number, its type where there are several, an enum's symbols.
TAG, TYPE, ENUM = f"{NAMESPACE}.Tag", f"{NAMESPACE}.Type", f"{NAMESPACE}.Type.Enum"
#: Prefix of the name of a struct that represents a oneof.
UNION_PREFIX = f"{NAMESPACE}.Union."
#: What a struct without a name is called, with a number behind it.
DEFAULT_NAME = "ConnectDefault"

DECIMAL, DATE = "confluent.type.Decimal", "google.type.Date"
TIME, TIMESTAMP = "google.type.TimeOfDay", "google.protobuf.Timestamp"
#: The messages that hold one value, in the order of their file, and the type of that.
WRAPPERS = MappingProxyType(
    {
        "google.protobuf.DoubleValue": "double",
        "google.protobuf.FloatValue": "float",
        "google.protobuf.Int64Value": "int64",
        "google.protobuf.UInt64Value": "uint64",
        "google.protobuf.Int32Value": "int32",
        "google.protobuf.UInt32Value": "uint32",
        "google.protobuf.BoolValue": "bool",
        "google.protobuf.StringValue": "string",
        "google.protobuf.BytesValue": "bytes",
    }
)
_WRAPPERS_FILE = "google/protobuf/wrappers.proto"
#: The file in which each of these is.
FILES = MappingProxyType(
    {
        DECIMAL: "confluent/type/decimal.proto",
        DATE: "google/type/date.proto",
        TIME: "google/type/timeofday.proto",
        TIMESTAMP: "google/protobuf/timestamp.proto",
        **dict.fromkeys(WRAPPERS, _WRAPPERS_FILE),
    }
)
#: The file of the field option with Kafka Connect's metadata, such as a decimal's scale.
META_FILE = "confluent/meta.proto"

_ENTRY = "Entry"
_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def entry_name(map_name: str) -> str:
    """The message of a map's entries."""
    if "_" in map_name:
        map_name = "".join(part.capitalize() for part in map_name.split("_"))
    return map_name + _ENTRY


def map_name(entry: str) -> str:
    """What a map is called by the message of its entries."""
    scope, dot, last = entry.rpartition(".")
    if last.endswith(_ENTRY):
        last = _INNER_CAPITAL.sub("_", last.removesuffix(_ENTRY)).lower()
    return scope + dot + last


def last_part(name: str) -> str:
    """A name without its package."""
    return name.rpartition(".")[2]
