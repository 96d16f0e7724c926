import structlog

from drover.log.connect_json import UnknownKindError, UnreadableRecordError
from drover.log.log import LogRecord, StoredRecord
from drover.rpc.log_service import skipping_unreadable


def decode(key: bytes, value: bytes | None) -> str:
    if key.startswith(b"task-"):
        if value is None:
            raise UnreadableRecordError("the value is null")
        return value.decode()
    raise UnknownKindError(key.decode())


def test_each_unreadable_record_is_reported_and_an_unknown_kind_once() -> None:
    decode_stored = skipping_unreadable(decode, "ignored", "test-store")
    keys = ["later-a", "task-a", "later-b", "task-b", "newer-a", "later-c"]
    with structlog.testing.capture_logs() as reported:
        found = [
            decode_stored(StoredRecord(offset, 0, LogRecord(key.encode(), None)))
            for offset, key in enumerate(keys)
        ]
        good = StoredRecord(9, 0, LogRecord(b"task-c", b"good"))
        assert decode_stored(good) == "good"
    assert found == ["ignored"] * 6
    assert [each["key"] for each in reported] == ["later-a", "task-a", "task-b", "newer-a"]
