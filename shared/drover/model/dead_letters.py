"""The ranges of dead letters that a connector replays, as its config lists them. Pure."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

#: The settings of a connector.
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
REPLAY = "errors.deadletterqueue.replay"
REPLAY_WHERE = "errors.deadletterqueue.replay.where"
REPLAY_ID = "errors.deadletterqueue.replay.id"
REPLAY_FORCE = "errors.deadletterqueue.replay.force"

#: Kafka Connect's names of the context headers (KIP-298).
HEADER_PREFIX = "__connect.errors."
#: The header with the connector that wrote the dead letter.
CONNECTOR_HEADER = f"{HEADER_PREFIX}connector.name"

#: The header of a repaired dead letter, and of its replayed record, with who repaired it.
REPAIRED_BY_HEADER = "drover.repaired.by"
#: The header of a repaired dead letter with the request, the place of the original, and the digest
#: of the record that failed.
REPAIR_HEADER = f"{HEADER_PREFIX}repair"

#: Headers of a dead letter that was cut to the size limit of its topic, with the original sizes.
VALUE_CUT_HEADER = f"{HEADER_PREFIX}value.original.bytes"
KEY_CUT_HEADER = f"{HEADER_PREFIX}key.original.bytes"
HEADERS_CUT_HEADER = f"{HEADER_PREFIX}headers.original.bytes"
CUT_HEADERS = (VALUE_CUT_HEADER, KEY_CUT_HEADER, HEADERS_CUT_HEADER)

#: The most ranges of one replay, because they are a setting of the connector.
RANGES_MAX = 1_000

_FORM = "must be partition:from-to, separated by commas, such as 0:5-120"
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """Offsets ``start_offset`` to ``end_offset`` - 1 of a partition of the dead letter queue."""

    partition: int
    start_offset: int
    end_offset: int


def condition_of_connector(name: str) -> str:
    """The condition that a dead letter of this connector meets, for ``REPLAY_WHERE``."""
    quoted = name.replace("'", "''")
    return f"headers.{CONNECTOR_HEADER}='{quoted}'"


def parse_ranges(text: str) -> tuple[ReplayRange, ...]:
    """The ranges of a setting.

    Raises:
        ValueError: The text is not valid; the message states what is valid.
    """
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        partition, _, offsets = each.partition(":")
        start, _, end = offsets.partition("-")
        if not all(number.isdecimal() and len(number) < 20 for number in (partition, start, end)):
            raise ValueError(f"{_FORM}, not {each[:80]!r}")
        made = ReplayRange(int(partition), int(start), int(end))
        if made.start_offset > made.end_offset or made.end_offset > _OFFSET_MAX:
            raise ValueError(f"{each!r} ends before it starts")
        found.append(made)
    for before, after in pairwise(sorted(found, key=lambda each: astuple(each))):
        if before.partition == after.partition and before.end_offset >= after.start_offset:
            raise ValueError("must name each dead letter once, and join ranges without a gap")
    return tuple(found)


def ranges_text(ranges: Sequence[ReplayRange]) -> str:
    """Ranges in the form in which the setting writes them."""
    return ",".join(f"{each.partition}:{each.start_offset}-{each.end_offset}" for each in ranges)
