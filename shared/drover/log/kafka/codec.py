"""Encodes records and claims of logs for Kafka."""

from collections.abc import Sequence

from drover.log.claims import WriterClaim
from drover.log.connect_json import UnreadableRecordError, dump, parse_object
from drover.log.kafka.records import KafkaRecord, Produced
from drover.log.log import LogRecord, StoredRecord
from drover.model.ids import Term

REQUEST_ID_HEADER = "drover-request-id"
AUTHOR_HEADER = "drover-author"


def to_produced(record: LogRecord, *, topic: str, partition: int | None, now_ms: int) -> Produced:
    """Encode a record; an empty request id or author has no header."""
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
    """Decode records of ``topic``; offsets are Kafka's, or numbered from ``first_offset``.

    A record of another program without a key gets an empty key.
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
        log_record = LogRecord(record.key or b"", record.value, request_id, author)
        place = (topic, record.partition, record.offset)
        stored.append(StoredRecord(offset, record.timestamp_ms, log_record, place))
    return stored


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def claim_key(topic: str, partition: int) -> str:
    """The control topic's key for the claim of a log; ``partition`` is the log's first."""
    return f"claim:{topic}:{partition}"


def dump_claim(claim: WriterClaim) -> bytes:
    """Encode a claim for the control topic."""
    return dump(
        {
            "owner": claim.owner,
            "generation": claim.term.generation,
            "sequence": claim.term.sequence,
            "epoch": claim.epoch,
        }
    )


def parse_claim(value: bytes) -> WriterClaim:
    """Decode a claim.

    Raises:
        UnreadableRecordError: It is not a claim.
    """
    fields = parse_object(value)
    owner, epoch = fields.get("owner"), fields.get("epoch")
    generation, sequence = fields.get("generation"), fields.get("sequence")
    numbers = all(isinstance(each, int) for each in (epoch, generation, sequence))
    if not isinstance(owner, str) or not numbers:
        raise UnreadableRecordError("the value is not a claim")
    return WriterClaim(owner, Term(generation, sequence), epoch)  # type: ignore[arg-type]
