"""Checks that the committed offsets have a form that a source can read.

Offsets that an earlier connector with the same name wrote are rejected; the task would otherwise
start from the beginning.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.connector.offsets import parse_offsets
from drover.model.command_lines import drover_command
from drover.model.offsets import CommittedOffset


class ForeignOffsetsError(Exception):
    """Another connector wrote the committed offsets; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class OffsetForm:
    """The form of a source partition and of its offset.

    Attributes:
        partition: All keys of a partition, with the types of their values.
        offset: The required keys of an offset, with their types; ``object`` for any type.
        optional: The optional keys of an offset; None for any.
    """

    partition: Mapping[str, type]
    offset: Mapping[str, type] = field(default_factory=dict)
    optional: Collection[str] | None = None

    def fits(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> bool:
        """Whether a committed offset has this form."""
        if partition.keys() != self.partition.keys() or not _typed(partition, self.partition):
            return False
        more = offset.keys() - self.offset.keys()
        known = self.optional is None or more <= set(self.optional)
        return known and self.offset.keys() <= offset.keys() and _typed(offset, self.offset)


def refuse_foreign(
    connector: str, kind: str, forms: Sequence[OffsetForm], committed: Iterable[CommittedOffset]
) -> None:
    """Reject committed offsets that have none of the forms.

    Args:
        connector: The connector's name.
        kind: The name of its class.
        forms: See ``SourceConnector.offset_forms``; empty allows any form.
        committed: All committed offsets of the connector.

    Raises:
        ForeignOffsetsError: An offset has none of the forms.
    """
    if not forms:
        return
    for partition, offset in parse_offsets(committed):
        if not any(each.fits(partition, offset) for each in forms):
            raise ForeignOffsetsError(
                f"{kind} cannot read the committed offsets of connector {connector!r}, because "
                f"another connector wrote them: a partition has {_listed(partition)}, its offset "
                f"{_listed(offset)}, but {kind} uses "
                f"{' or '.join(_shown(each) for each in forms)}. Give the connector another name, "
                f"or reset its offsets: {drover_command('connector stop', connector)}, "
                f"{drover_command('connector offsets', connector, options=['--reset'])}, "
                f"{drover_command('connector resume', connector)}. To resume at given offsets, "
                "use -f FILE instead of --reset. If the class of a Java plugin wrote them, it can "
                "read them: put java: before the name in connector.class, or name the class in "
                "DROVER_JAVA_PREFERRED of the workers"
            )


def _typed(values: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(kind is object or type(values[name]) is kind for name, kind in kinds.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shown(form: OffsetForm) -> str:
    known = [*form.offset, *(form.optional or ())]
    return f"{_listed(form.partition)}{f' with {_listed(known)}' if known else ''}"
