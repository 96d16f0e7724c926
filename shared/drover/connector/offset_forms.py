"""Which committed offsets a source can read: those of another connector, which had the same name
before, are refused before a task goes on as if there were none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.connector.offsets import parse_offsets
from drover.model.offsets import CommittedOffset


class ForeignOffsetsError(Exception):
    """The committed offsets are none that the connector writes; the message says what to do."""


@dataclass(frozen=True, slots=True)
class OffsetForm:
    """How a source partition and its offset look.

    Attributes:
        partition: The keys of a partition, all of them, with the types of their values.
        offset: The keys that an offset has at least, with their types; ``object`` for any.
        optional: The other keys that it may have; None for any.
    """

    partition: Mapping[str, type]
    offset: Mapping[str, type] = field(default_factory=dict)
    optional: Collection[str] | None = None

    def fits(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> bool:
        """Whether a committed offset is of this form."""
        if partition.keys() != self.partition.keys() or not _typed(partition, self.partition):
            return False
        more = offset.keys() - self.offset.keys()
        known = self.optional is None or more <= set(self.optional)
        return known and self.offset.keys() <= offset.keys() and _typed(offset, self.offset)


def refuse_foreign(
    connector: str, kind: str, forms: Sequence[OffsetForm], committed: Iterable[CommittedOffset]
) -> None:
    """Refuse to start where committed offsets are of none of the forms.

    Args:
        connector: The connector's name.
        kind: What its class is called.
        forms: As ``SourceConnector.offset_forms``; none for any.
        committed: All offsets of the connector.

    Raises:
        ForeignOffsetsError: There are some.
    """
    if not forms:
        return
    for partition, offset in parse_offsets(committed):
        if not any(each.fits(partition, offset) for each in forms):
            raise ForeignOffsetsError(
                f"{kind} cannot read the committed offsets of connector {connector!r}, so another "
                f"connector wrote them: a partition has {_listed(partition)}, its offset "
                f"{_listed(offset)}, and here {' or '.join(_shown(each) for each in forms)}. Give "
                f"the connector another name, or let it begin anew: drover connector stop "
                f"{connector}, drover connector offsets {connector} --reset, drover connector "
                f"resume {connector}; with -f FILE in place of --reset it goes on where you say"
            )


def _typed(values: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(kind is object or type(values[name]) is kind for name, kind in kinds.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shown(form: OffsetForm) -> str:
    known = [*form.offset, *(form.optional or ())]
    return f"{_listed(form.partition)}{f' with {_listed(known)}' if known else ''}"
