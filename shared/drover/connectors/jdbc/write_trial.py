"""What a database would refuse of some records: they are written, and the transaction is rolled
back.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import sqlalchemy as sa

from drover.connector import Term
from drover.connector.records import TOPIC
from drover.connectors.jdbc.changes import places_of
from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from drover.connectors.jdbc.exact_values import MYSQL
from drover.connectors.jdbc.table_writer import TableWriter
from drover.connectors.jdbc.tables import Tables
from drover.connectors.jdbc.write_settings import WriteSettings, split_name

_LOCK_TIMEOUT_MS = 3_000
_ROLLED_BACK = """
SELECT 1 FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = coalesce(:schema, database()) AND t.table_name = :name
  AND e.transactions = 'YES'
"""


def refusals(
    address: DatabaseAddress, settings: WriteSettings, records: Sequence[pa.RecordBatch]
) -> list[str | None]:
    """The reason for each record that the database refuses, or at which the task would fail.

    Each batch is one record. Records whose table or columns would be created are not tried.

    Raises:
        RetriableError: The database cannot be asked now.
        DatabaseError: Its tables cannot be read.
    """
    trial = replace(
        settings, creates=False, evolves=False, ledger=None, lock_timeout_ms=_LOCK_TIMEOUT_MS
    )
    writer = TableWriter(address, "", Term(0, 0), trial, refused_max=len(records) + 1)
    with address.connected() as connection:
        tables = Tables(connection, settings)
        tried = [each for each in records if _can_be_tried(connection, tables, settings, each)]
    try:
        found = writer.tried(tried)
    except DatabaseError:  # at one of them the task would fail: find it
        found = {}
        for each in tried:
            try:
                found |= writer.tried([each])
            except DatabaseError as error:
                found[places_of(each)[0]] = str(error)
    return [found.get(places_of(each)[0]) for each in records]


def _can_be_tried(
    connection: "sa.Connection", tables: Tables, settings: WriteSettings, record: pa.RecordBatch
) -> bool:
    if tables.lack(record):
        return False
    if connection.dialect.name not in MYSQL:
        return True
    table = settings.table_of(record.column(TOPIC)[0].as_py())
    if not tables.has(table):
        return True
    schema, name = split_name(table)
    found = connection.execute(sa.text(_ROLLED_BACK), {"schema": schema, "name": name})
    return found.first() is not None
