"""The internal constructors and methods of Kafka that the host of Java plugins calls exist.

The jars are read, so a jar of another release beside a host that was built before is found.
"""

import struct
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.compiled_plugins import java_host

_KAFKA = "org/apache/kafka/"
_UTF8, _CLASS, _NAME_AND_TYPE = 1, 7, 12
_MEMBERS = (9, 10, 11)
#: The length of a constant behind its tag.
_LENGTHS = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
    **dict.fromkeys((*_MEMBERS, _NAME_AND_TYPE), 4),
}
_WIDE = (5, 6)


class Member(NamedTuple):
    """A method, constructor or field that a class has or uses."""

    owner: str
    name: str
    descriptor: str


class Parsed(NamedTuple):
    """A class file."""

    parents: tuple[str, ...]
    declared: frozenset[tuple[str, str]]
    used: frozenset[Member]


def parsed(data: bytes) -> Parsed:
    (count,) = struct.unpack_from(">H", data, 8)
    at, index = 10, 1
    texts: dict[int, str] = {}
    places: dict[int, tuple[int, int]] = {}
    while index < count:
        tag = data[at]
        places[index] = (tag, at + 1)
        if tag == _UTF8:
            (length,) = struct.unpack_from(">H", data, at + 1)
            texts[index] = data[at + 3 : at + 3 + length].decode(errors="replace")
            at += 3 + length
        else:
            at += 1 + _LENGTHS[tag]
        index += 2 if tag in _WIDE else 1

    def named(number: int) -> str:
        return texts[struct.unpack_from(">H", data, places[number][1])[0]]

    used = set()
    for tag, place in places.values():
        if tag in _MEMBERS:
            owner, pair = struct.unpack_from(">HH", data, place)
            name, descriptor = struct.unpack_from(">HH", data, places[pair][1])
            used.add(Member(named(owner), texts[name], texts[descriptor]))
    parent, interface_count = struct.unpack_from(">HH", data, at + 4)
    interfaces = struct.unpack_from(f">{interface_count}H", data, at + 8)
    parents = tuple(named(each) for each in (parent, *interfaces) if each)
    at += 8 + 2 * interface_count
    declared = set()
    for _ in range(2):  # fields, then methods
        (member_count,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(member_count):
            name, descriptor, attribute_count = struct.unpack_from(">HHH", data, at + 2)
            declared.add((texts[name], texts[descriptor]))
            at += 8
            for _ in range(attribute_count):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
    return Parsed(parents, frozenset(declared), frozenset(used))


class Jars:
    """The classes of the host's folder."""

    def __init__(self, folder: Path) -> None:
        self._archives = [zipfile.ZipFile(each) for each in sorted(folder.glob("*.jar"))]
        self._places = {
            name.removesuffix(".class"): archive
            for archive in self._archives
            for name in archive.namelist()
            if name.endswith(".class")
        }
        self.find = cache(self._find)

    def _find(self, name: str) -> Parsed | None:
        archive = self._places.get(name)
        return None if archive is None else parsed(archive.read(f"{name}.class"))

    def of_host(self) -> Iterator[str]:
        (host,) = (each for each in self._archives if "drover-java-host" in str(each.filename))
        return (name for name, archive in self._places.items() if archive is host)

    def has(self, member: Member) -> bool:
        """Whether a class or its parents have a member; parents of Java itself have any."""
        found = self.find(member.owner)
        if found is None:
            return member.owner.startswith("java/")
        if (member.name, member.descriptor) in found.declared:
            return True
        if member.name == "<init>":
            return False
        return any(self.has(member._replace(owner=each)) for each in found.parents)


@pytest.fixture(scope="module")
def jars() -> Jars:
    return Jars(java_host().jars)


def test_every_member_of_kafka_that_the_host_uses_exists(jars: Jars) -> None:
    used: set[Member] = set()
    for name in jars.of_host():
        found = jars.find(name)
        assert found is not None
        used |= {each for each in found.used if each.owner.startswith(_KAFKA)}
    constructors = {each.owner.rpartition("/")[2] for each in used if each.name == "<init>"}
    assert {"ExactlyOnceWorkerSourceTask", "WorkerSinkTask", "TransformationChain"} <= constructors
    assert not sorted(each for each in used if not jars.has(each))


def test_a_constructor_with_other_parameters_is_missing(jars: Jars) -> None:
    loop = "org/apache/kafka/connect/runtime/WorkerSinkTask"
    assert not jars.has(Member(loop, "<init>", "()V"))
    assert jars.has(Member(loop, "initialize", "(Lorg/apache/kafka/connect/runtime/TaskConfig;)V"))
