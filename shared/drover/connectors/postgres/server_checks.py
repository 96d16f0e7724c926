"""The checks of a config at its server: they predict what a task meets there."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drover.connector import Caution, SkippedCheck, Violation, compiled_pattern
from drover.connectors.postgres.publications import (
    Publication,
    creation_remedy,
    publication_of,
    published_generated,
    restricted_tables,
    split_tables,
    unsent_operations,
    why_not_altered,
    why_not_owned,
    why_split,
)
from drover.connectors.postgres.remedies import identifier, statement_fault
from drover.connectors.postgres.server import (
    ServerAddress,
    ServerError,
    Table,
    first_line,
    key_of,
    large_columns,
    other_relations,
    relation_of,
    slot_of,
    tables_of,
)
from drover.connectors.postgres.session import SLOTS_USED_UP, session_prefix, slot_fault
from drover.connectors.postgres.settings import (
    ALL_TABLES,
    AUTOCREATE,
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    DATABASE,
    DISABLED,
    FILTERED,
    HEARTBEAT_MS,
    HEARTBEAT_QUERY,
    HOST,
    INITIAL_ONLY,
    KEY_COLUMNS,
    PUBLICATION,
    SKIPPED,
    SLOT,
    SNAPSHOT_MODE,
    TABLE_INCLUDE,
    USER,
    is_column_wanted,
    key_columns,
    key_rules,
    publication_name,
    slot_name,
    wanted_tables,
    why_left_out,
)
from drover.connectors.postgres.table_choice import publishable

if TYPE_CHECKING:
    import psycopg

#: How many tables a message names.
_NAMED = 20
#: Statements whose privileges EXPLAIN checks.
_EXPLAINED = re.compile(
    r"\s*(select|insert|update|delete|merge|with|values|table)\b", re.IGNORECASE
)


@dataclass
class ServerChecks:
    """The checks at one server.

    Attributes:
        connection: A session as the config's user, without a transaction.
        address: The server.
        config: The parsed config, without invalid settings.
        tables: The wanted tables, once they are found.
        found: The publication, once it is found; None if there is none.
    """

    connection: "psycopg.Connection[tuple[Any, ...]]"
    address: ServerAddress
    config: Mapping[str, Any]
    tables: list[Table] = field(default_factory=list)
    found: Publication | None = None

    def faults(self) -> Iterator[Violation]:
        """The violations of all checks. A check is skipped if the user may not read its part of
        the catalogue.
        """
        import psycopg

        checks: list[tuple[str, Callable[[], Iterator[Violation]]]] = [
            (HOST, self._server),
            (PUBLICATION, self._publication),
            (TABLE_INCLUDE, self._tables),
            (KEY_COLUMNS, self._keys),
            (HEARTBEAT_QUERY, self._heartbeat),
            (USER, self._replication),
            (SLOT, self._slot),
            (TABLE_INCLUDE, self._large_values),
        ]
        for setting, check in checks:
            try:
                yield from check()
            except ServerError as error:
                yield Violation(setting, str(error))
            except psycopg.OperationalError:
                raise
            except psycopg.Error as error:
                what = check.__name__.strip("_").replace("_", " ")
                yield SkippedCheck(setting, f"{what}: {first_line(error)}")

    @property
    def _streams(self) -> bool:
        return self.config.get(SNAPSHOT_MODE) != INITIAL_ONLY

    def _setting(self, name: str) -> str:
        row = self.connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
        assert row is not None
        return str(row[0])

    def _server(self) -> Iterator[Violation]:
        row = self.connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if row == (True,):
            yield Violation(HOST, "the server is a standby: set the address of the primary")
        level = self._setting("wal_level")
        if self._streams and level != "logical":
            text = f"the server's wal_level is {level}: set it to logical, and restart the server"
            yield Violation(HOST, text)

    def _replication(self) -> Iterator[Violation]:
        """A session that replicates, as a task opens it: some providers permit it without the
        attribute.
        """
        import psycopg

        if not self._streams or self._is_own(self._reader()):
            return
        parameters = self.address.parameters("drover validation")
        try:
            psycopg.connect(**parameters, replication="database", autocommit=True).close()
        except psycopg.OperationalError as error:
            text = first_line(error, self.address)
            if "REPLICATION" in text:
                user = identifier(self.address.user)
                yield Violation(USER, f"has no right to replicate: ALTER ROLE {user} REPLICATION")
            else:
                yield Violation(HOST, f"refuses to send its log: {text}")

    def _reader(self) -> tuple[Any, ...] | None:
        """The process that reads the slot, and its application name; None if there is none."""
        return self.connection.execute(
            "SELECT s.active_pid, a.application_name FROM pg_replication_slots s LEFT JOIN"
            " pg_stat_activity a ON a.pid = s.active_pid"
            " WHERE s.slot_name = %s AND s.active_pid IS NOT NULL",
            (slot_name(self.config),),
        ).fetchone()

    def _is_own(self, reader: tuple[Any, ...] | None) -> bool:
        prefix = session_prefix(str(self.config.get("name")))
        return reader is not None and str(reader[1]).startswith(f"{prefix}/")

    def _slot(self) -> Iterator[Violation]:
        if not self._streams:
            return
        name = slot_name(self.config)
        slot = slot_of(self.connection, name)
        if slot is None:
            row = self.connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
            limit = int(self._setting("max_replication_slots"))
            if row is not None and row[0] >= limit:
                text = f"{name!r} cannot be created: all {limit} slots are in use; {SLOTS_USED_UP}"
                yield Violation(SLOT, text)
            return
        fault = slot_fault(slot, name, self.config[DATABASE])
        if fault is not None:
            yield Violation(SLOT, fault)
        reader = self._reader()
        if reader is not None and not self._is_own(reader):
            text = f"{name!r} is read by another session (process {reader[0]})"
            advice = f"the task waits until that reader stops; or set another {SLOT}"
            yield Caution(SLOT, f"{text}: {advice}")

    def _publication(self) -> Iterator[Violation]:
        if not self._streams:
            return
        name = publication_name(self.config)
        self.found = found = publication_of(self.connection, name)
        if found is None and self.config.get(AUTOCREATE) == DISABLED:
            yield Violation(
                PUBLICATION,
                f"{name!r} does not exist: CREATE PUBLICATION {identifier(name)} FOR TABLE … WITH "
                f"(publish_via_partition_root = true), or set {AUTOCREATE}={FILTERED}",
            )
        elif found is None:
            creates = (
                "SELECT has_database_privilege(current_database(), 'CREATE'),"
                " (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"
            )
            may_create, is_super = self.connection.execute(creates).fetchone() or (False, False)
            if self.config.get(AUTOCREATE) == ALL_TABLES and not is_super:
                yield Violation(
                    USER,
                    f"may not create the publication {name} for all tables: ALTER ROLE "
                    f"{identifier(self.address.user)} SUPERUSER, or set {AUTOCREATE}={FILTERED}",
                )
            elif not may_create:
                yield Violation(
                    USER,
                    f"may not create the publication {name}: {creation_remedy(self.address)}, or "
                    f"create it and set {AUTOCREATE}={DISABLED}",
                )
            elif self._setting("transaction_read_only") == "on":
                yield Violation(
                    USER,
                    f"may not create the publication {name} in its read-only sessions: ALTER ROLE "
                    f"{identifier(self.address.user)} SET default_transaction_read_only = off",
                )
        else:
            unsent = unsent_operations(found, self.config.get(SKIPPED) or ())
            if unsent is not None:
                yield Caution(PUBLICATION, unsent)

    def _tables(self) -> Iterator[Violation]:
        wanted = {each.id: each for each in wanted_tables(self.connection, self.config)}
        self.tables = list(wanted.values())
        refused: Mapping[str, str] = {}
        if self._streams:
            sent, refused = publishable(self.connection, self.config, self.found, wanted)
            yield from self._sent_otherwise(wanted, sent)
            if self.found is None and self.config.get(AUTOCREATE) == ALL_TABLES:
                yield from self._refused_changes()
            elif self.config.get(AUTOCREATE) != FILTERED and self.found is not None:
                if sent:
                    self.tables = [each for name, each in wanted.items() if name in sent]
                else:
                    yield Violation(PUBLICATION, f"{self.found.name!r} has no tables")
        for pattern in self.config.get(TABLE_INCLUDE) or ():
            if not any(compiled_pattern(pattern).matches(each.id) for each in self.tables):
                yield Violation(TABLE_INCLUDE, self._without_match(pattern, wanted))
        for each in self.tables:
            fault = why_left_out(each, self.config, read=False)
            if each.grants:
                yield Violation(USER, f"may not read {each.id}: {'; '.join(each.grants)}")
            elif fault is not None:
                yield Violation(TABLE_INCLUDE, f"table {each.id} {fault}")
            if each.id in refused:
                user = self.address.user
                for setting, why in (
                    (TABLE_INCLUDE, why_not_owned(each, user)),
                    (PUBLICATION, why_not_altered(each, self.found, user)),
                ):
                    if why is not None:
                        yield Violation(setting, f"table {each.id} {why}")

    def _sent_otherwise(
        self, wanted: Mapping[str, Table], sent: Collection[str]
    ) -> Iterator[Violation]:
        """Tables that the publication sends in another form than the snapshot has."""
        name = publication_name(self.config)
        roots = [each for each in wanted.values() if each.partitioned and each.id not in sent]
        if roots:
            split = split_tables(self.connection, name)
            for each in roots:
                if each.oid in split:
                    yield Violation(PUBLICATION, f"table {each.id} {why_split(name)}")
        restricted = sorted(restricted_tables(self.connection, name) & wanted.keys())
        if restricted:
            yield Caution(
                PUBLICATION,
                f"{name!r} sends only some rows or columns of {', '.join(restricted[:_NAMED])}, "
                "but the snapshot has all of them",
            )

    def _refused_changes(self) -> Iterator[Violation]:
        """The tables of which the server refuses changes once all tables are published."""
        found = [
            each.id
            for each in tables_of(self.connection)
            if not each.identifies_rows or each.unsent_identity
        ]
        if found:
            yield Caution(
                AUTOCREATE,
                "once all tables are published, the server refuses updates and deletes of tables "
                f"without a suitable replica identity: {', '.join(found[:_NAMED])}",
            )

    def _without_match(self, pattern: str, wanted: Mapping[str, Table]) -> str:
        """Why a pattern selects no table."""
        matches = compiled_pattern(pattern).matches
        unsent = [each for name, each in wanted.items() if matches(name)]
        if unsent:
            own = identifier(publication_name(self.config))
            names = ", ".join(identifier(each.schema, each.name) for each in unsent[:_NAMED])
            return (
                f"no table of publication {own} matches {pattern!r}: ALTER PUBLICATION {own} "
                f"ADD TABLE {names}"
            )
        for name, kind in other_relations(self.connection):
            if matches(name):
                return f"no table matches {pattern!r}: {name} {kind}"
        near = [each.id for each in tables_of(self.connection) if matches(each.name)][:_NAMED]
        meant = f": patterns contain the schema, such as {', '.join(near)}" if near else ""
        return f"no table matches {pattern!r}{meant}"

    def _keys(self) -> Iterator[Violation]:
        generated = published_generated(self.connection, publication_name(self.config))
        for each in self.tables:
            asked_for = key_columns(self.config, each.id)
            if asked_for is not None:
                try:
                    key_of(
                        self.connection, relation_of(self.connection, each, generated), asked_for
                    )
                except ServerError as error:
                    yield Violation(KEY_COLUMNS, str(error))
        rules = key_rules(self.config.get(KEY_COLUMNS)) if KEY_COLUMNS in self.config else ()
        for pattern, _ in rules:
            if not any(compiled_pattern(pattern).matches(each.id) for each in self.tables):
                yield Violation(KEY_COLUMNS, f"no table matches {pattern!r}")

    def _heartbeat(self) -> Iterator[Violation]:
        """The statement of heartbeats: parsed and planned, but not run."""
        import psycopg

        statement = self.config.get(HEARTBEAT_QUERY)
        if not statement:
            return
        if not self.config.get(HEARTBEAT_MS):
            yield Caution(HEARTBEAT_QUERY, f"is not run: {HEARTBEAT_MS} is 0")
        connection, query = self.connection, statement.encode()
        connection.execute("BEGIN READ ONLY")
        try:
            # prepared, so that only one statement is possible
            parsed = connection.pgconn.prepare(b"", query)
            if parsed.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(parsed, encoding="utf-8")
            if not _EXPLAINED.match(statement):
                text = "the privileges of this statement: only its run shows them"
                yield SkippedCheck(HEARTBEAT_QUERY, text)
                return
            connection.execute(b"EXPLAIN " + query, prepare=True)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            told = first_line(error)
            if "multiple commands" in told:
                text = "the statements and their privileges: there are several of them"
                yield SkippedCheck(HEARTBEAT_QUERY, text)
                return
            yield Violation(
                HEARTBEAT_QUERY, statement_fault(error.sqlstate, told, statement, self.address.user)
            )
        finally:
            connection.execute("ROLLBACK")

    def _large_values(self) -> Iterator[Violation]:
        """A warning about columns that the log may lack."""
        if not self._streams:
            return
        generated = published_generated(self.connection, publication_name(self.config))
        include = self.config.get(COLUMN_INCLUDE)
        exclude = self.config.get(COLUMN_EXCLUDE) or ()
        found = []
        for each in self.tables:
            columns = [
                name
                for name in large_columns(self.connection, each, generated)
                if is_column_wanted(f"{each.id}.{name}", include, exclude)
            ]
            if columns:
                found.append(f"{each.id} ({', '.join(columns)})")
        if found:
            more = f" and {len(found) - _NAMED} more tables" if len(found) > _NAMED else ""
            yield Caution(
                TABLE_INCLUDE,
                "an update that does not modify a large value (about 2 KB or more) does not "
                f"contain it: {'; '.join(found[:_NAMED])}{more}. Sinks that upsert leave the "
                "column unchanged; for the values, ALTER TABLE … REPLICA IDENTITY FULL",
            )
