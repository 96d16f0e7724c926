"""Any sequence of appends, claims, compactions and crashes gives the result of a simple model."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from drover.errors import FailedPreconditionError
from drover.log import memory, sqlite
from drover.log.log import Log, LogRecord, StoredRecord
from drover.log.sqlite import SqliteLog
from drover.model.ids import Term
from drover.testing import MemoryLog, read_all
from tests.support.waiting import wait_until_async

KEPT = 8
"""Compaction leaves so many of the newest records alone here, so that short runs reach it."""

RECORDS = st.lists(
    st.builds(
        LogRecord,
        st.sampled_from([b"a", b"b", b"c", b"d", b""]),
        st.none() | st.binary(max_size=4),
        st.sampled_from(["", "r1", "r2"]),
    ),
    max_size=6,
)
OWNERS = st.sampled_from(["w1", "w2"])
TERMS = st.builds(Term, st.integers(0, 3), st.integers(0, 2))


class FixedClock:
    def now_ms(self) -> int:
        return 5


class LogModel(RuleBasedStateMachine):
    """The model: every appended record, the compacted offsets, the claim."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.appended: list[LogRecord] = []
        self.removed: set[int] = set()
        self.claims: list[tuple[str, Term]] = []

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def append_to_model(self, records: list[LogRecord]) -> None:
        self.appended.extend(records)

    @rule(records=RECORDS)
    def append(self, records: list[LogRecord]) -> None:
        self.append_to_model(records)
        assert self.run(self.log.append(records)) == len(self.appended)

    @rule(records=RECORDS, epoch=st.integers(0, 4))
    def append_privileged(self, records: list[LogRecord], epoch: int) -> None:
        accepted = epoch == len(self.claims) and epoch > 0
        try:
            end = self.run(self.log.append(records, epoch))
        except FailedPreconditionError:
            assert not accepted
        else:
            assert accepted
            self.append_to_model(records)
            assert end == len(self.appended)

    @rule(batches=st.lists(RECORDS, min_size=2, max_size=5), epochs=st.data())
    def append_concurrently(self, batches: list[list[LogRecord]], epochs: st.DataObject) -> None:
        tokens = [
            epochs.draw(st.sampled_from([None, len(self.claims), 99]), label="epoch")
            for _ in batches
        ]

        async def appends() -> list[int | BaseException]:
            return await asyncio.gather(
                *(
                    self.log.append(batch, token)
                    for batch, token in zip(batches, tokens, strict=True)
                ),
                return_exceptions=True,
            )

        for batch, token, outcome in zip(batches, tokens, self.run(appends()), strict=True):
            if token is None or (token == len(self.claims) and token > 0):
                self.append_to_model(batch)
                assert outcome == len(self.appended)
            else:
                assert isinstance(outcome, FailedPreconditionError)

    @rule(owner=OWNERS, term=TERMS)
    def claim(self, owner: str, term: Term) -> None:
        standing = self.claims[-1] if self.claims else None
        try:
            epoch = self.run(self.log.claim(owner, term))
        except FailedPreconditionError:
            assert standing is not None
            assert term < standing[1] or (term == standing[1] and owner != standing[0])
            return
        if standing != (owner, term):
            assert standing is None or term > standing[1]
            self.claims.append((owner, term))
        assert epoch == len(self.claims)

    @rule()
    def compact(self) -> None:
        present = [n for n in range(len(self.appended)) if n not in self.removed]
        old = [n for n in present if n < len(self.appended) - KEPT]
        last = {self.appended[n].key: n for n in present}
        doomed = {
            n for n in old if self.appended[n].value is None or last[self.appended[n].key] != n
        }
        assert self.run(self.log.compact()) == len(doomed)
        self.removed |= doomed

    @rule(start=st.integers(0, 40))
    def read_from(self, start: int) -> None:
        offsets = [stored.offset for stored in self.run(read_all(self.log, start))]
        assert offsets == [n for n in range(start, len(self.appended)) if n not in self.removed]

    @invariant()
    def holds_what_the_model_says(self) -> None:
        expected = [
            StoredRecord(n, 5, record)
            for n, record in enumerate(self.appended)
            if n not in self.removed
        ]
        assert self.run(read_all(self.log)) == expected
        assert self.run(self.log.end_offset()) == len(self.appended)

    @invariant()
    def compaction_changes_no_keys_value(self) -> None:
        kept = [record for n, record in enumerate(self.appended) if n not in self.removed]
        live = {key: value for key, value in latest(self.appended).items() if value is not None}
        assert {key: value for key, value in latest(kept).items() if value is not None} == live

    def teardown(self) -> None:
        self.run(self.log.close())
        self.runner.close()


class MemoryLogModel(LogModel):
    @initialize()
    def open(self) -> None:
        self.log = self.memory = MemoryLog(FixedClock())

    @rule(records=RECORDS, survives=st.booleans())
    def crash_in_an_append(self, records: list[LogRecord], survives: bool) -> None:
        async def crash() -> MemoryLog:
            self.memory.tear_next_append(survives=survives)
            append = asyncio.create_task(self.memory.append(records))
            await wait_until_async(lambda: self.memory.torn)
            reopened = self.memory.crash()
            await asyncio.wait([append])
            assert append.exception() is not None
            return reopened

        self.log = self.memory = self.run(crash())
        if survives:
            self.append_to_model(records)


class SqliteLogModel(LogModel):
    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.log = self.run(SqliteLog.open(self.directory / "log.db", FixedClock()))

    @rule()
    def close_and_reopen(self) -> None:
        self.run(self.log.close())
        self.log = self.run(SqliteLog.open(self.directory / "log.db", FixedClock()))

    @rule()
    def crash(self) -> None:
        """Continue with the files as they are on disk at this moment, WAL included."""
        crashed = Path(tempfile.mkdtemp())
        for file in self.directory.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, crashed)
        self.run(self.log.close())
        shutil.rmtree(self.directory)
        self.directory = crashed
        self.log = self.run(SqliteLog.open(self.directory / "log.db", FixedClock()))

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


def latest(records: list[LogRecord]) -> dict[bytes, bytes | None]:
    return {record.key: record.value for record in records}


@pytest.mark.parametrize(("model", "example_count"), [(MemoryLogModel, 60), (SqliteLogModel, 25)])
def test_a_log_does_what_the_model_says(
    model: type[LogModel], example_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "KEPT_RECORD_COUNT", KEPT)
    monkeypatch.setattr(sqlite, "KEPT_RECORD_COUNT", KEPT)
    limits = settings(max_examples=example_count, stateful_step_count=25)
    run_state_machine_as_test(model, settings=limits)
