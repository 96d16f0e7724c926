"""Records and claims of logs as they are kept in Kafka."""

from collections.abc import Sequence

from drover.log.claims import WriterClaim
from drover.log.connect_json import UnreadableRecordError, dump, parse_object
from drover.log.kafka.records import KafkaRecord, Produced
from drover.log.log import LogRecord, StoredRecord
from drover.model.ids import Term

REQUEST_ID_HEADER = "drover-request-id"
AUTHOR_HEADER = "drover-author"


def to_produced(record: LogRecord, *, topic: str, partition: int | None, now_ms: int) -> Produced:
    """A record as it is written; what it does not have it has no header for."""
    headers = ((REQUEST_ID_HEADER, record.request_id), (AUTHOR_HEADER, record.author))
    return Produced(
        topic,
        record.key,
        record.value,
        partition=partition,
        headers=tuple((name, text.encode(errors="replace")) for name, text in headers if text),
        timestamp_ms=now_ms if record.timestamp_ms is None else record.timestamp_ms,
    )


def to_stored(
    records: Sequence[KafkaRecord], first_offset: int | None = None, *, topic: str = ""
) -> list[StoredRecord]:
    """Records of ``topic`` as a log brings them, with Kafka's offsets, or counted from
    ``first_offset``.

    One that others wrote without a key has an empty one.
    """
    stored = []
    for index, record in enumerate(records):
        offset = record.offset if first_offset is None else first_offset + index
        request_id = author = ""
        for name, value in record.headers:
            if name == REQUEST_ID_HEADER:
                request_id = _text(value)
            elif name == AUTHOR_HEADER:
                author = _text(value)
        kept = LogRecord(record.key or b"", record.value, request_id, author)
        place = (topic, record.partition, record.offset)
        stored.append(StoredRecord(offset, record.timestamp_ms, kept, place))
    return stored


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def claim_key(topic: str, partition: int) -> str:
    """Where the control topic has the claim of a log that begins with this partition."""
    return f"claim:{topic}:{partition}"


def dump_claim(claim: WriterClaim) -> bytes:
    """A claim as the control topic has it."""
    return dump(
        {
            "owner": claim.owner,
            "generation": claim.term.generation,
            "sequence": claim.term.sequence,
            "epoch": claim.epoch,
        }
    )


def parse_claim(value: bytes) -> WriterClaim:
    """The way back.

    Raises:
        UnreadableRecordError: It is no claim.
    """
    fields = parse_object(value)
    owner, epoch = fields.get("owner"), fields.get("epoch")
    generation, sequence = fields.get("generation"), fields.get("sequence")
    numbers = all(isinstance(each, int) for each in (epoch, generation, sequence))
    if not isinstance(owner, str) or not numbers:
        raise UnreadableRecordError("the value is no claim")
    return WriterClaim(owner, Term(generation, sequence), epoch)  # type: ignore[arg-type]
