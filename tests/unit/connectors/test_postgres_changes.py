"""Records made from messages of logical replication, without a server."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.connector.records import ERROR_COLUMN
from drover.connectors.postgres.change_rows import Messages, RecordShape
from drover.connectors.postgres.pgoutput import Transaction, parse_begin
from drover.connectors.postgres.settings import ENVELOPE, FLAT
from drover.connectors.postgres.snapshot_point import SnapshotPoint

#: Marks an unchanged value that is stored out of line (TOAST) and was not sent.
UNCHANGED = object()
INT8, TEXT = 20, 25
ORDERS = {"id": INT8, "name": TEXT}
BEGIN = b"B" + struct.pack(">QqI", 900, 0, 7)


def relation(oid: int, table: str, columns: Mapping[str, int]) -> bytes:
    described = b"".join(
        b"\0" + name.encode() + b"\0" + struct.pack(">Ii", kind, -1)
        for name, kind in columns.items()
    )
    head = b"R" + struct.pack(">I", oid) + b"public\0" + table.encode() + b"\0d"
    return head + struct.pack(">H", len(columns)) + described


def row(*values: object) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(_value, values))


def _value(value: object) -> bytes:
    if value is UNCHANGED or value is None:
        return b"n" if value is None else b"u"
    text = str(value).encode()
    return b"t" + struct.pack(">I", len(text)) + text


def change(kind: str, oid: int, rest: bytes) -> bytes:
    return kind.encode() + struct.pack(">I", oid) + rest


def insert(oid: int, *values: object) -> bytes:
    return change("I", oid, b"N" + row(*values))


def update(oid: int, new: Sequence[object], *, old: bytes = b"") -> bytes:
    return change("U", oid, old + b"N" + row(*new))


def delete(oid: int, *key: object) -> bytes:
    return change("D", oid, b"K" + row(*key))


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids)


def shape(layout: str = ENVELOPE, **others: Any) -> RecordShape:
    fields: dict[str, Any] = {
        "version": "1",
        "prefix": "p",
        "database": "d",
        "now_ms": 5,
        "layout": layout,
        "decimals": "precise",
        "placeholder": "?",
        "tombstones": True,
        "skipped": frozenset(),
    }
    return RecordShape(**{**fields, **others})


def records(
    payloads: Sequence[bytes],
    made: RecordShape | None = None,
    *,
    transaction: Transaction | None = None,
    relations: Mapping[int, bytes] | None = None,
    seen: Mapping[str, SnapshotPoint] | None = None,
    first_lsn: int = 100,
) -> list[dict[str, Any]]:
    messages = Messages(
        b"".join(payloads),
        np.array([len(each) for each in payloads], np.int64),
        np.arange(first_lsn, first_lsn + len(payloads)),
        transaction,
        relations or {},
        {"public.orders": ("id",), "public.notes": ("id",)},
        seen or {},
    )
    return [found for batch in messages.records(made or shape()) for found in batch.to_pylist()]


def told(found: Sequence[Mapping[str, Any]]) -> list[object]:
    """Operation, key, old row and new row of each record; only the key of tombstones."""
    return [
        each["key"]["id"]
        if each["value"] is None
        else (
            each["value"]["op"],
            each["key"] and each["key"]["id"],
            each["value"]["before"] and tuple(each["value"]["before"].values()),
            each["value"]["after"] and tuple(each["value"]["after"].values()),
        )
        for each in found
    ]


def test_each_change_is_a_record_in_the_order_of_the_log() -> None:
    found = records(
        [
            BEGIN,
            relation(9, "orders", ORDERS),
            insert(9, 1, "å"),
            update(9, [1, None]),
            update(9, [2, "c"], old=b"K" + row(1, None)),  # the key changes
            update(9, [2, "d"], old=b"O" + row(2, "c")),
            delete(9, 2, None),
            truncate(9),
            insert(9, 3, ""),
        ]
    )
    assert told(found) == [
        ("c", 1, None, (1, "å")),
        ("u", 1, None, (1, None)),
        ("d", 1, (1, None), None),
        1,
        ("c", 2, None, (2, "c")),
        ("u", 2, (2, "c"), (2, "d")),
        ("d", 2, (2, None), None),
        2,
        ("t", None, None, None),
        ("c", 3, None, (3, "")),
    ]
    source = found[0]["value"]["source"]
    assert (source["lsn"], source["txId"], source["ts_ms"]) == (102, 7, 946_684_800_000)
    assert {each["topic"] for each in found} == {"p.public.orders"}


def test_rows_alone_have_no_records_of_deletions_but_tombstones() -> None:
    payloads = [insert(9, 1, "a"), delete(9, 1, None), truncate(9), insert(9, 2, "b")]
    known = {9: relation(9, "orders", ORDERS)}
    found = records(payloads, shape(FLAT), transaction=parse_begin(BEGIN), relations=known)
    assert [each["value"] for each in found] == [
        {"id": 1, "name": "a"},
        None,
        {"id": 2, "name": "b"},
    ]
    flat = shape(FLAT, tombstones=False, skipped=frozenset("c"))
    assert not records(payloads, flat, transaction=parse_begin(BEGIN), relations=known)


def test_a_value_that_was_not_sent_is_that_of_the_old_row_or_stood_in_for() -> None:
    found = records(
        [
            BEGIN,
            relation(9, "orders", ORDERS),
            update(9, [1, UNCHANGED], old=b"O" + row(1, "old")),
            update(9, [1, UNCHANGED]),
            update(9, [1, UNCHANGED], old=b"K" + row(2, None)),
        ]
    )
    rows = [each["value"]["after"]["name"] for each in found if each["value"] and each["key"]
            and each["value"]["after"]]  # fmt: skip
    assert rows == ["old", "?", "?"]


def test_tables_change_their_form_and_those_that_are_not_wanted_are_left_out() -> None:
    wider = {**ORDERS, "city": TEXT}
    found = records(
        [
            BEGIN,
            insert(9, 1, "a"),
            relation(8, "notes", {"id": INT8}),
            insert(8, 5),
            relation(7, "others", ORDERS),
            insert(7, 1, "a"),
            relation(9, "orders", wider),
            insert(9, 2, "b", "oslo"),
            truncate(7, 8, 9),
        ],
        relations={9: relation(9, "orders", ORDERS)},
    )
    by_topic: dict[str, list[Any]] = {}
    for each in found:
        by_topic.setdefault(each["topic"], []).append(each["value"]["after"])
    assert by_topic == {
        "p.public.orders": [
            {"id": 1, "name": "a"},
            {"id": 2, "name": "b", "city": "oslo"},
            None,
        ],
        "p.public.notes": [{"id": 5}, None],
    }


def test_a_bad_value_is_the_fault_of_the_records_that_have_it() -> None:
    columns = {"id": INT8, "day": 1082}
    found = records(
        [
            BEGIN,
            relation(9, "orders", columns),
            insert(9, 1, "infinity"),
            insert(9, 2, "2026-01-02"),
            change("D", 9, b"O" + row(1, "infinity")),
        ]
    )
    errors = [column for column in found[0] if "error" in column]
    assert len(errors) == 1
    assert [each[errors[0]] is not None for each in found] == [True, False, True, False]
    assert found[0][errors[0]] == (
        "column 'day' has 'infinity', which date32[day] cannot hold: correct the row, or leave the "
        "column out with column.exclude.list (key: id=1)"
    )


@pytest.mark.parametrize(
    ("kind", "modifier", "remedy"),
    [(1700, (5 << 16) + 2 + 4, "decimal.handling.mode=string"), (1082, -1, "column.exclude.list")],
)
def test_a_bad_value_of_a_key_is_shown(kind: int, modifier: int, remedy: str) -> None:
    columns = {"id": kind, "name": TEXT}
    message = relation(9, "orders", columns).replace(
        struct.pack(">Ii", kind, -1), struct.pack(">Ii", kind, modifier)
    )
    found = records([BEGIN, message, insert(9, "-infinity", "x"), delete(9, "-infinity", None)])
    errors = [each[ERROR_COLUMN] for each in found]
    assert len(errors) == 3
    assert all("(key: id=-infinity)" in each and remedy in each for each in errors)


def test_what_a_snapshot_has_seen_is_left_out() -> None:
    known = {9: relation(9, "orders", ORDERS)}
    begins = [b"B" + struct.pack(">QqI", 900 + xid, 0, xid) for xid in (10, 20, 30)]
    payloads = [p for n, begin in enumerate(begins) for p in (begin, insert(9, n, "x"))]
    point = SnapshotPoint.parse("15:25:", 2_000)
    found = records(payloads, relations=known, seen={"public.orders": point})
    assert [each["key"]["id"] for each in found] == [2]
    early = SnapshotPoint.parse("15:25:", 1)
    assert len(records(payloads, relations=known, seen={"public.orders": early})) == 3


def test_a_row_with_other_columns_than_its_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not have the 2 columns"):
        records([BEGIN, relation(9, "orders", ORDERS), insert(9, 1)])


_ROWS = st.tuples(st.integers(1, 3), st.sampled_from(["", "a", "ö" * 40, None]))
_CHANGES = st.one_of(
    _ROWS.map(lambda values: insert(9, *values)),
    _ROWS.map(lambda values: update(9, values)),
    st.tuples(_ROWS, _ROWS).map(lambda each: update(9, each[0], old=b"O" + row(*each[1]))),
    _ROWS.map(lambda values: update(9, [values[0], UNCHANGED], old=b"O" + row(*values))),
    _ROWS.map(lambda values: delete(9, *values)),
    st.just(truncate(9)),
)


@given(st.lists(_CHANGES, max_size=20), st.integers(0, 20))
def test_records_are_the_same_however_a_log_is_cut(changes: list[bytes], cut: int) -> None:
    """Messages arrive one by one, in two parts, or all at once."""
    known, begun = {9: relation(9, "orders", ORDERS)}, parse_begin(BEGIN)

    def of(first: int, end: int) -> list[dict[str, Any]]:
        return records(
            changes[first:end], transaction=begun, relations=known, first_lsn=100 + first
        )

    whole = of(0, len(changes))
    assert whole == [each for at in range(len(changes)) for each in of(at, at + 1)]
    assert whole == of(0, cut) + of(cut, len(changes))


def test_rows_alone_without_a_key_cannot_tell_updates_and_deletions() -> None:
    payloads = [
        BEGIN,
        relation(9, "orders", ORDERS),
        insert(9, 1, "a"),
        update(9, [1, "b"], old=b"O" + row(1, "a")),
        change("D", 9, b"O" + row(1, "b")),
    ]
    messages = Messages(
        b"".join(payloads),
        np.array([len(each) for each in payloads], np.int64),
        np.arange(len(payloads)),
        None,
        {},
        {"public.orders": ()},
        {},
    )
    (batch,) = messages.records(shape(FLAT))
    (errors,) = (name for name in batch.schema.names if "error" in name)
    told = batch.column(errors).to_pylist()
    assert [each is None for each in told] == [True, False, False]
    assert "message.key.columns" in told[1]
    (enveloped,) = messages.records(shape())
    assert enveloped.num_rows == 3
    assert "__drover_error" not in enveloped.schema.names
