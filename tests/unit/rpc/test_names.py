"""White space around names in requests of clients; every RPC is read from the descriptors."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drover.api.connect.v1 import connect_service_pb2
from drover.rpc.names import CLIENT_SERVICE, NAME_FIELDS, trim_names

SERVICE = connect_service_pb2.DESCRIPTOR.services_by_name["ConnectService"]
PASTED = " \u00a0orders dead\t\n"
#: Texts that are no names: they are used as they are.
OTHER_TEXTS = {
    "key_converter",
    "key_separator",
    "metadata",
    "null_marker",
    "offset_json",
    "page_token",
    "partition_json",
    "plan_hash",
    "reason",
    "request_id",
    "value_converter",
}


def filled(descriptor: Descriptor) -> Message:
    """A message whose texts all have white space around them."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, PASTED)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(filled(field.message_type))
    return message


def texts_of(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            yield field.name, value
        elif field.message_type is not None:
            yield from texts_of(value)


@pytest.mark.parametrize("method", [*SERVICE.methods], ids=lambda method: method.name)
def test_each_call_takes_names_without_white_space_around_them(method: MethodDescriptor) -> None:
    request = filled(method.input_type)
    trim_names(request)
    for name, text in texts_of(request):
        assert text == ("orders dead" if name in NAME_FIELDS else PASTED)
        assert name in NAME_FIELDS | OTHER_TEXTS, "is the new field a name?"


def test_the_service_of_clients_is_the_one_that_is_trimmed() -> None:
    assert f"/{SERVICE.full_name}/" == CLIENT_SERVICE
