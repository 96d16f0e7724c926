"""Reports about the records of one pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

#: Errors whose message is complete without the name of their class.
_OWN_ERRORS = frozenset({"RecordError", "RejectedError"})
#: The most failures of a pass that are listed.
FAILURES_MAX = 100


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A failed record.

    ``place`` is its position as text: topic, partition and offset, or the source's description.
    ``stage`` has Kafka Connect's name, ``step`` the name in the connector's config. ``record`` is
    its key and value as text, if they may be logged.
    """

    place: str
    stage: str
    step: str
    error_class: str
    message: str
    trace: str = ""
    record: str = ""

    def __str__(self) -> str:
        kind = "" if self.error_class in _OWN_ERRORS else f"{self.error_class}: "
        return f"record {self.place} failed in {self.step}: {kind}{self.message}"


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A dead letter, and the topic, partition and offset of its record."""

    place: tuple[str, int, int]
    letter: pa.RecordBatch


@dataclass(slots=True)
class PassReport:
    """Counts of records by outcome.

    read = written + filtered + dead-lettered + skipped, unless a transform splits records.
    """

    read_count: int = 0
    written_count: int = 0
    #: Dropped by transforms, or by schema.change.
    filtered_count: int = 0
    #: Failed, and written to the dead letter queue.
    dead_lettered_count: int = 0
    #: Failed, tolerated, and dropped.
    skipped_count: int = 0
    #: The first FAILURES_MAX failures.
    failures: list[FailedRecord] = field(default_factory=list)
    #: Dead letters that the driver writes, in the order of their records.
    letters: Sequence[KeptLetter] = ()
    #: The rows returned by the writer of dead letters.
    dead_letter_rows: Sequence[Mapping[str, Any]] = ()
    #: The first change that schema.change discarded, by topic.
    schema_changes: dict[str, str] = field(default_factory=dict)

    @property
    def failed_count(self) -> int:
        """Failed records."""
        return self.dead_lettered_count + self.skipped_count

    def add_failure(self, failure: FailedRecord) -> None:
        """Add a failure unless the list is full."""
        if len(self.failures) < FAILURES_MAX:
            self.failures.append(failure)


def total(reports: Iterable[PassReport]) -> PassReport:
    """The sum of reports."""
    found = PassReport()
    rows: list[Mapping[str, Any]] = []
    letters: list[KeptLetter] = []
    for each in reports:
        found.read_count += each.read_count
        found.written_count += each.written_count
        found.filtered_count += each.filtered_count
        found.dead_lettered_count += each.dead_lettered_count
        found.skipped_count += each.skipped_count
        found.schema_changes = each.schema_changes | found.schema_changes
        for failure in each.failures:
            found.add_failure(failure)
        rows += each.dead_letter_rows
        letters += each.letters
    found.dead_letter_rows, found.letters = rows, letters
    return found
