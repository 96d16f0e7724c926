"""What a Java class file declares, read without running it.

The format is chapter 4 of the Java Virtual Machine Specification.
"""

import struct
from dataclasses import dataclass

_MAGIC = 0xCAFEBABE
#: Class file version 45 is Java 1.1, and each release adds one: 61 is Java 17.
_FIRST_RELEASE = 44
_UTF8, _CLASS, _STRING, _LONG, _DOUBLE = 1, 7, 8, 5, 6
#: The size of each other kind of constant, without its tag.
_SIZES = {3: 4, 4: 4, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2}
_SIZES |= {20: 2, _LONG: 8, _DOUBLE: 8}
_PUBLIC, _INTERFACE, _ABSTRACT = 0x0001, 0x0200, 0x0400


class ClassFileError(Exception):
    """The bytes are no class file; the message is a clause."""


@dataclass(frozen=True, slots=True)
class ClassFile:
    """A class.

    Attributes:
        name: Its full name with dots; ``$`` before the name of a nested class.
        parents: Its superclass and its interfaces.
        java: The oldest Java release that can load it, such as 17.
        instantiable: Whether others can create an instance: the class is public and not abstract,
            and has a public constructor without parameters.
        references: Every class that its code names: as a type, or in a constant text.
    """

    name: str
    parents: tuple[str, ...]
    java: int
    instantiable: bool
    references: frozenset[str]


def read_class(data: bytes, *, with_references: bool = False) -> ClassFile:
    """The class in a class file.

    Args:
        data: The whole file.
        with_references: Whether to collect ``references``, which takes longer; else it is empty.

    Raises:
        ClassFileError: The bytes are no class file.
    """
    try:
        return _read(data, with_references)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise ClassFileError("it is cut off or damaged") from error


def _read(data: bytes, with_references: bool) -> ClassFile:
    magic, _, major, count = struct.unpack_from(">IHHH", data)
    if magic != _MAGIC:
        raise ClassFileError("it does not start like a class file")
    constants, offset = _constants(data, count)
    access, this, parent, interface_count = struct.unpack_from(">HHHH", data, offset)
    interfaces = struct.unpack_from(f">{interface_count}H", data, offset + 8)
    parents = [_class_name(data, constants, each) for each in (parent, *interfaces) if each]
    offset = _after_fields(data, offset + 8 + 2 * interface_count)
    return ClassFile(
        name=_class_name(data, constants, this),
        parents=tuple(parents),
        java=max(1, major - _FIRST_RELEASE),
        instantiable=access & (_PUBLIC | _INTERFACE | _ABSTRACT) == _PUBLIC
        and _has_constructor(data, constants, offset),
        references=_references(data, constants) if with_references else frozenset(),
    )


def _constants(data: bytes, count: int) -> tuple[list[int], int]:
    """The offset of each constant's tag, and the offset behind the last."""
    offsets = [0] * count
    offset, index = 10, 1
    while index < count:
        offsets[index] = offset
        tag = data[offset]
        if tag == _UTF8:
            offset += 3 + (data[offset + 1] << 8 | data[offset + 2])
        else:
            offset += 1 + _SIZES[tag]
        index += 2 if tag in (_LONG, _DOUBLE) else 1
    return offsets, offset


def _number(data: bytes, offset: int) -> int:
    return data[offset] << 8 | data[offset + 1]


def _text(data: bytes, constants: list[int], index: int) -> str:
    offset = constants[index]
    if data[offset] != _UTF8:
        raise IndexError(index)
    # Java's own form of UTF-8 differs only where names of classes have no characters
    return data[offset + 3 : offset + 3 + _number(data, offset + 1)].decode(errors="replace")


def _class_name(data: bytes, constants: list[int], index: int) -> str:
    offset = constants[index]
    if data[offset] != _CLASS:
        raise IndexError(index)
    return _text(data, constants, _number(data, offset + 1)).replace("/", ".")


def _after_fields(data: bytes, offset: int) -> int:
    count, offset = _number(data, offset), offset + 2
    for _ in range(count):
        offset = _after_attributes(data, offset + 6)
    return offset


def _after_attributes(data: bytes, offset: int) -> int:
    count, offset = _number(data, offset), offset + 2
    for _ in range(count):
        offset += 6 + struct.unpack_from(">I", data, offset + 2)[0]
    return offset


def _has_constructor(data: bytes, constants: list[int], offset: int) -> bool:
    count, offset = _number(data, offset), offset + 2
    for _ in range(count):
        access, name, descriptor = struct.unpack_from(">HHH", data, offset)
        if (
            access & _PUBLIC
            and _text(data, constants, name) == "<init>"
            and _text(data, constants, descriptor) == "()V"
        ):
            return True
        offset = _after_attributes(data, offset + 6)
    return False


def _references(data: bytes, constants: list[int]) -> frozenset[str]:
    found = set()
    for offset in constants:
        if offset and data[offset] in (_CLASS, _STRING):
            found.add(_text(data, constants, _number(data, offset + 1)).replace("/", "."))
    return frozenset(found)
