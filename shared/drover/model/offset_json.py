"""Offsets as JSON: a canonical form to compare partitions, and validation. Pure."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from drover.errors import Violation
from drover.model.offsets import METADATA_MAX_BYTES, CommittedOffset

#: Partitions and offsets are positions; they must not be used to store data.
JSON_MAX_BYTES = 64 * 1024
#: The header of a record in the offsets topic with the metadata of the offset.
METADATA_HEADER = "drover-metadata"
_LONG_BOUND = 2**63
_LONG_MAX_CHARS = 20
#: The maximum overhead of an offset in a message, besides its texts.
_OVERHEAD_BYTES = 32


def canonical_json(text: str) -> str:
    """The canonical form of a JSON object, equal for equal objects: sorted keys, no white space.

    Raises:
        ValueError: ``text`` is not a JSON object.
    """
    return _dump(_object(text), sort_keys=True)


def metadata_of(headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The metadata in a record's headers; empty if there is none."""
    found = [value for name, value in headers if name == METADATA_HEADER]
    return (found[-1] or b"").decode(errors="replace") if found else ""


def validate(offsets: Sequence[CommittedOffset]) -> list[Violation]:
    """All violations in the offsets."""
    violations = []
    for index, offset in enumerate(offsets):
        for field, text in (
            ("partition_json", offset.partition_json),
            ("offset_json", offset.offset_json),
        ):
            if text is None:
                continue
            fault = _json_fault(text)
            if fault:
                violations.append(Violation(f"offsets[{index}].{field}", fault))
        size = len(offset.metadata.encode("utf-8", "surrogatepass"))
        if size > METADATA_MAX_BYTES:
            violations.append(
                Violation(
                    f"offsets[{index}].metadata",
                    f"must be at most {METADATA_MAX_BYTES} bytes, not {size}",
                )
            )
    return violations


def large_numbers(offsets: Sequence[CommittedOffset]) -> list[Violation]:
    """Violations by whole numbers beyond 64 bits, which Kafka Connect cannot read."""
    return [
        Violation(f"offsets[{index}].{field}", "must have whole numbers of at most 64 bits")
        for index, offset in enumerate(offsets)
        for field, text in (
            ("partition_json", offset.partition_json),
            ("offset_json", offset.offset_json),
        )
        if text is not None and _has_large_number(text)
    ]


def _has_large_number(text: str) -> bool:
    found: list[int] = []

    def note(digits: str) -> int:
        # not int(): it refuses numbers of thousands of digits
        whole = int(digits) if len(digits) <= _LONG_MAX_CHARS else _LONG_BOUND
        found.append(whole)
        return whole

    try:
        json.loads(text, parse_int=note)
    except (ValueError, RecursionError):
        return False  # ``validate`` reports it
    return any(not -_LONG_BOUND <= each < _LONG_BOUND for each in found)


def compact_json(text: str) -> str:
    """A JSON object without white space, with keys in their original order.

    Raises:
        ValueError: ``text`` is not a JSON object.
    """
    return _dump(_object(text), sort_keys=False)


def offset_record_key(connector: str, partition_json: str) -> bytes:
    """The key of a source partition in the offsets topic, in Kafka Connect's form."""
    name = json.dumps(connector, ensure_ascii=False)
    return f"[{name},{compact_json(partition_json)}]".encode()


def size_bytes(offset: CommittedOffset) -> int:
    """The approximate size of an offset in a message."""
    texts = (offset.partition_json, offset.offset_json or "", offset.metadata)
    return sum(len(text.encode()) for text in texts) + _OVERHEAD_BYTES


def _json_fault(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > JSON_MAX_BYTES:
        return f"must be at most {JSON_MAX_BYTES} bytes, not {size}"
    try:
        canonical_json(text).encode()
    except (ValueError, RecursionError) as error:
        return f"must be a JSON object: {error}"
    return ""


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {text[:80]!r}")
    return value


def _dump(value: object, *, sort_keys: bool) -> str:
    return json.dumps(
        value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
