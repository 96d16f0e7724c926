"""Within v1 nothing is removed, renumbered, retyped or renamed.

``golden/api_v1.txt`` has a line for each item that a client or a stored record depends on.
Additions pass. After an intended breaking change, or to record additions (at a release), run this
test with ``DROVER_BLESS=1`` and read the diff.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from tests.support.descriptors import elements

GOLDEN = Path(__file__).parent / "golden" / "api_v1.txt"
#: Between processes of one worker, which always have the same version.
FREE_PACKAGES = ("drover.api.engine.",)

LABELS = FieldDescriptorProto.Label.Name
TYPES = FieldDescriptorProto.Type.Name


def surface() -> Iterator[str]:
    """A line for each stable item."""
    for element in elements():
        name, it = element.name, element.descriptor
        if name.startswith(FREE_PACKAGES):
            continue
        match element.kind:
            case "field":
                kind = it.type_name.lstrip(".") or TYPES(it.type).removeprefix("TYPE_").lower()
                label = LABELS(it.label).removeprefix("LABEL_").lower()
                if it.proto3_optional:
                    label = "presence"
                elif it.HasField("oneof_index"):
                    label = f"oneof[{it.oneof_index}]"
                yield f"field {name} = {it.number} {label} {kind}"
            case "value":
                yield f"value {name} = {it.number}"
            case "rpc":
                stream = "stream " if it.server_streaming else ""
                yield f"rpc {name}({it.input_type}) returns ({stream}{it.output_type})"
            case _:
                yield f"{element.kind} {name}"


def test_nothing_of_v1_is_gone() -> None:
    present = sorted(surface())
    if os.environ.get("DROVER_BLESS"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("\n".join(present) + "\n")
    golden = GOLDEN.read_text().splitlines()
    assert len(golden) > 500
    gone = sorted(set(golden) - set(present))
    assert not gone, "removed or changed:\n" + "\n".join(gone)


def test_a_number_is_used_once() -> None:
    """A removed field's number may be reused only for the same field."""
    golden = dict(_numbers(GOLDEN.read_text().splitlines()))
    for place, name in _numbers(surface()):
        assert golden.get(place, name) == name, f"{place} was {golden[place]}, is {name}"


def _numbers(lines: Iterator[str] | list[str]) -> Iterator[tuple[tuple[str, str], str]]:
    for line in lines:
        kind, name, *rest = line.split(" ")
        if kind in {"field", "value"}:
            scope, _, own = name.rpartition(".")
            yield (scope, rest[1]), own
