"""White space around names in requests of clients."""

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: The service whose callers type or paste names. Workers call the other services with names
#: as they are stored, such as the names in Kafka Connect's logs.
CLIENT_SERVICE: Final = "/drover.api.connect.v1.ConnectService/"
#: Fields with the name of a connector, topic, worker, class, logger, principal or RPC, a logger's
#: level, and the outcome of a call.
NAME_FIELDS: Final = frozenset(
    {
        *("call", "class_name", "connector", "level", "name"),
        *("outcome", "principal", "topic", "worker_id"),
    }
)


def trim_names(request: Message) -> None:
    """Remove white space around each name of a request, before its role is checked.

    Kafka Connect removes it from the name of a new connector. Here all calls do the same, so that a
    name that was pasted with a blank means the same connector in each of them.
    """
    for field, value in request.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not field.is_repeated:
                trim_names(value)
        elif field.name in NAME_FIELDS and _is_text(field) and value != value.strip():
            setattr(request, field.name, value.strip())


def _is_text(field: Any) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
