"""Shared codecs: ids, terms, durations, times, enums."""

import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from drover.api.common.v1 import figures_pb2, ids_pb2, record_counts_pb2
from drover.errors import InvalidArgumentError, Violation
from drover.model.ids import TaskId, Term
from drover.model.status import RecordCounts

EnumT = TypeVar("EnumT", bound=StrEnum)
OtherwiseT = TypeVar("OtherwiseT")

#: The maximum number of unknown enum values and message kinds that a process logs.
REPORTED_MAX = 100

_reported: set[str] = set()


class EnumCodec(Generic[EnumT]):
    """Converts between a proto enum and a StrEnum with the same names without a prefix.

    Args:
        proto_enum: The generated enum.
        prefix: The prefix of the proto names, such as ``TARGET_STATE_``.
        model: The StrEnum. Values that only one side has cannot be converted.
    """

    def __init__(self, proto_enum: Any, prefix: str, model: type[EnumT]) -> None:
        names: dict[str, int] = dict(proto_enum.items())
        self._numbers = {
            member: names[prefix + member.value]
            for member in model
            if prefix + member.value in names
        }
        self._prefix = prefix
        self._members = {number: member for member, number in self._numbers.items()}
        self._allowed = ", ".join(prefix + member.value for member in self._numbers)

    def encode(self, member: EnumT) -> Any:
        """The proto value."""
        return self._numbers[member]

    def decode(self, number: int, field: str) -> EnumT:
        """The model's value.

        Raises:
            InvalidArgumentError: INVALID_REQUEST for UNSPECIFIED and unknown values.
        """
        member = self._members.get(number)
        if member is None:
            raise invalid_field(field, f"{number} is not one of {self._allowed}")
        return member

    def decode_response(self, number: int, otherwise: OtherwiseT) -> EnumT | OtherwiseT:
        """The model's value in a server's response, or ``otherwise`` for an unknown value.

        A newer server may send values that this version does not have. The process logs one
        warning for each value.
        """
        member = self._members.get(number)
        if member is not None:
            return member
        value = f"{self._prefix}{number}"
        if _is_first(value):
            _warn(
                "a server sends an enum value that this version does not know: upgrade this"
                " process",
                value=value,
                taken_for=str(otherwise),
            )
        return otherwise

    def find(self, number: int) -> EnumT | None:
        """The model's value; None for UNSPECIFIED and unknown values."""
        return self._members.get(number)


def report_unknown_kind(message: Message) -> None:
    """Log that a message of an unknown kind is skipped; once per kind.

    A newer server may send kinds that this version does not have. The log event identifies them by
    their field numbers.
    """
    unknown = UnknownFieldSet(message)
    fields = sorted({unknown[index].field_number for index in range(len(unknown))})
    name = message.DESCRIPTOR.full_name
    if _is_first(f"{name} {fields}"):
        _warn(
            "a server sends a kind of message that this version does not know: the message is"
            " skipped, upgrade this process",
            message=name,
            fields=fields,
        )


def _warn(event: str, **values: Any) -> None:
    # imported here: a command seldom logs, and structlog is a fifth of its start
    import structlog

    if not structlog.is_configured():  # a client's standard output is for its results
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    structlog.get_logger("drover.codec").warning(event, **values)


def _is_first(value: str) -> bool:
    """Whether this process has not reported ``value`` yet; False after too many reports."""
    if value in _reported or len(_reported) >= REPORTED_MAX:
        return False
    _reported.add(value)
    return True


def invalid_field(field: str, description: str) -> InvalidArgumentError:
    """The error for a request with one invalid field."""
    return InvalidArgumentError.listing([Violation(field, description)])


def encode_task_id(task: TaskId) -> ids_pb2.TaskId:
    """As proto."""
    return ids_pb2.TaskId(connector=task.connector, task=task.task)


def decode_task_id(message: ids_pb2.TaskId) -> TaskId:
    """As model; the connector's name is not checked here."""
    return TaskId(message.connector, message.task)


def encode_term(term: Term) -> ids_pb2.Term:
    """As proto."""
    return ids_pb2.Term(generation=term.generation, sequence=term.sequence)


def decode_term(message: ids_pb2.Term) -> Term:
    """As model."""
    return Term(message.generation, message.sequence)


def encode_counts(counts: RecordCounts) -> record_counts_pb2.RecordCounts:
    """As proto."""
    return record_counts_pb2.RecordCounts(
        read_count=counts.read_count,
        written_count=counts.written_count,
        filtered_count=counts.filtered_count,
        dead_lettered_count=counts.dead_lettered_count,
        skipped_count=counts.skipped_count,
    )


def decode_counts(message: record_counts_pb2.RecordCounts) -> RecordCounts:
    """As model."""
    return RecordCounts(
        read_count=message.read_count,
        written_count=message.written_count,
        filtered_count=message.filtered_count,
        dead_lettered_count=message.dead_lettered_count,
        skipped_count=message.skipped_count,
    )


def encode_figures(figures: Mapping[str, int]) -> list[figures_pb2.Figure]:
    """As proto, by name."""
    return [figures_pb2.Figure(name=name, value=value) for name, value in sorted(figures.items())]


def decode_figures(messages: Iterable[figures_pb2.Figure]) -> dict[str, int]:
    """As model."""
    return {each.name: each.value for each in messages}


def encode_duration(duration_ms: int) -> Duration:
    """A duration in ms as Duration."""
    duration = Duration()
    duration.FromMilliseconds(duration_ms)
    return duration


def decode_duration(message: Duration) -> int:
    """A Duration in ms, rounded toward zero; an unset one is 0."""
    nanos = message.seconds * 1_000_000_000 + message.nanos
    return nanos // 1_000_000 if nanos >= 0 else -(-nanos // 1_000_000)


def encode_timestamp(time_ms: int) -> Timestamp:
    """Ms since the epoch as Timestamp."""
    timestamp = Timestamp()
    timestamp.FromMilliseconds(time_ms)
    return timestamp


def decode_timestamp(message: Timestamp) -> int:
    """A Timestamp in ms since the epoch; an unset one is 0."""
    return message.seconds * 1_000 + message.nanos // 1_000_000


def decode_config(message: Mapping[str, str]) -> dict[str, str]:
    """A copy of a settings map."""
    return dict(message)
