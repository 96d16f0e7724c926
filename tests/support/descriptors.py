"""The protos as compiled by protoc: descriptors with their comments."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

REPOSITORY = Path(__file__).resolve().parents[2]
PROTO_ROOT = REPOSITORY / "protos"

# field numbers in descriptor.proto, which make up the paths of source code info
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_FIELD, _NESTED, _NESTED_ENUM, _ONEOF = 2, 3, 4, 8
_METHOD, _VALUE = 2, 2


@dataclass(frozen=True)
class Commented:
    """An element of the protos: its kind, full name, descriptor and comment."""

    kind: str
    name: str
    descriptor: Any
    comment: str
    file: str


@cache
def descriptor_set() -> FileDescriptorSet:
    """Every proto file of the repository, compiled, with comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "api.binpb"
        files = sorted(str(path) for path in PROTO_ROOT.rglob("*.proto"))
        well_known = str(resources.files("grpc_tools") / "_proto")
        code = protoc.main(
            [
                "protoc",
                f"-I{PROTO_ROOT}",
                f"-I{well_known}",
                "--include_source_info",
                f"--descriptor_set_out={out}",
                *files,
            ]
        )
        assert code == 0, "protoc refused the protos"
        return FileDescriptorSet.FromString(out.read_bytes())


@cache
def elements() -> tuple[Commented, ...]:
    """Every service, RPC, message, field, oneof, enum and enum value."""
    return tuple(element for file in descriptor_set().file for element in _of_file(file))


def _of_file(file: FileDescriptorProto) -> Iterator[Commented]:
    comments = {
        tuple(location.path): (location.leading_comments or location.trailing_comments).strip()
        for location in file.source_code_info.location
    }

    def element(kind: str, name: str, descriptor: Any, path: tuple[int, ...]) -> Commented:
        return Commented(kind, name, descriptor, comments.get(path, ""), file.name)

    def enum(scope: str, descriptor: EnumDescriptorProto, path: tuple[int, ...]) -> Iterator[Any]:
        name = f"{scope}.{descriptor.name}"
        yield element("enum", name, descriptor, path)
        for index, value in enumerate(descriptor.value):
            yield element("value", f"{name}.{value.name}", value, (*path, _VALUE, index))

    def message(scope: str, descriptor: DescriptorProto, path: tuple[int, ...]) -> Iterator[Any]:
        if descriptor.options.map_entry:
            return
        name = f"{scope}.{descriptor.name}"
        yield element("message", name, descriptor, path)
        for index, field in enumerate(descriptor.field):
            yield element("field", f"{name}.{field.name}", field, (*path, _FIELD, index))
        for index, oneof in enumerate(descriptor.oneof_decl):
            if not oneof.name.startswith("_"):  # `optional` compiles to such a oneof
                yield element("oneof", f"{name}.{oneof.name}", oneof, (*path, _ONEOF, index))
        for index, nested in enumerate(descriptor.nested_type):
            yield from message(name, nested, (*path, _NESTED, index))
        for index, nested_enum in enumerate(descriptor.enum_type):
            yield from enum(name, nested_enum, (*path, _NESTED_ENUM, index))

    def service(descriptor: ServiceDescriptorProto, path: tuple[int, ...]) -> Iterator[Any]:
        name = f"{file.package}.{descriptor.name}"
        yield element("service", name, descriptor, path)
        for index, method in enumerate(descriptor.method):
            yield element("rpc", f"{name}.{method.name}", method, (*path, _METHOD, index))

    for index, top in enumerate(file.message_type):
        yield from message(file.package, top, (_MESSAGE, index))
    for index, top_enum in enumerate(file.enum_type):
        yield from enum(file.package, top_enum, (_ENUM, index))
    for index, top_service in enumerate(file.service):
        yield from service(top_service, (_SERVICE, index))
