"""``coordinators.db``: atomic claims, locks, damage, and a file that others keep busy."""

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drover.errors import Reason
from drover.log.directory import DataDirectory
from drover.testing import ManualClock, raises_reason
from drover_coordinator.backends.embedded import lease_file
from drover_coordinator.backends.embedded.lease_file import (
    FileLeases,
    LeaseFile,
    lock_address,
    lock_name,
)
from drover_coordinator.core.ownership.lease_table import Identity, LeaseTable, apply_writes
from drover_coordinator.core.ownership.machine import (
    Beat,
    Claim,
    Lease,
    Peer,
    Renew,
)
from drover_coordinator.sharding.leases import LeaseClient
from tests.support.lease_courses import COURSES, A, B


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LeaseFile]:
    opened = LeaseFile(tmp_path / lease_file.FILE_NAME)
    opened.begin(2)
    yield opened
    opened.close()


@pytest.mark.parametrize("course", COURSES)
def test_a_course_in_the_file(file: LeaseFile, course: str) -> None:
    for who, writes in COURSES[course].steps:
        after = file.exchange(who, writes)
    assert after == COURSES[course].table
    assert file.exchange(B, []) == COURSES[course].table


@pytest.mark.parametrize("course", COURSES)
def test_a_course_in_memory(course: str) -> None:
    table = LeaseTable((Lease(), Lease()))
    for who, writes in COURSES[course].steps:
        table = apply_writes(table, who, writes)
    assert table == COURSES[course].table


def test_of_many_who_claim_at_once_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / lease_file.FILE_NAME
    first = LeaseFile(path)
    first.begin(1)

    def claim(number: int) -> Lease:
        own = LeaseFile(path)
        who = Identity(f"{number}:1", "run")
        [lease] = own.exchange(who, [Claim(0, 1, Lease())]).leases
        own.close()
        return lease

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(claim, range(8)))
    assert len({lease.owner for lease in seen}) == 1
    assert {lease.epoch for lease in seen} == {1}
    first.close()


def test_what_was_written_is_there_after_it_was_opened_again(tmp_path: Path) -> None:
    path = tmp_path / lease_file.FILE_NAME
    file = LeaseFile(path)
    assert file.shard_count is None
    file.begin(3)
    file.exchange(A, [Beat(), Claim(2, 7, Lease())])
    file.close()
    again = LeaseFile(path)
    assert again.shard_count == 3
    assert again.exchange(B, []) == LeaseTable(
        (Lease(), Lease(), Lease("a:1", "run a", 7)),
        {"a:1": Peer("run a", 1, 3_000)},
    )
    again.close()


def test_damage_within_the_file_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / lease_file.FILE_NAME
    file = LeaseFile(path)
    file.begin(200)
    file.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = bytes(len(raw) - 4096)
    path.write_bytes(raw)
    with raises_reason(Reason.LOG_CORRUPT, str(path), "is damaged", "no group is lost"):
        LeaseFile(path)


def test_a_file_of_the_first_version_keeps_its_leases(tmp_path: Path) -> None:
    path = tmp_path / lease_file.FILE_NAME
    old = sqlite3.connect(path)
    old.executescript("""
        CREATE TABLE setting (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
        CREATE TABLE lease (
            shard INTEGER PRIMARY KEY, owner TEXT NOT NULL, incarnation TEXT NOT NULL,
            epoch INTEGER NOT NULL, renewals INTEGER NOT NULL
        );
        CREATE TABLE coordinator (
            address TEXT PRIMARY KEY, incarnation TEXT NOT NULL, beats INTEGER NOT NULL
        );
        INSERT INTO setting VALUES ('shard_count', 1);
        INSERT INTO lease VALUES (0, 'a:1', 'run a', 7, 3);
        INSERT INTO coordinator VALUES ('a:1', 'run a', 5);
        PRAGMA application_id = 0x44524F4C;
        PRAGMA user_version = 1;
    """)
    old.close()
    file = LeaseFile(path)
    assert file.shard_count == 1
    table = file.exchange(A, [Beat()])
    assert table == LeaseTable((Lease("a:1", "run a", 7, 3),), {"a:1": Peer("run a", 1, 3_000)})
    file.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_while_it_is_used_is_given_up(
    tmp_path: Path, file: LeaseFile, replaced: bool
) -> None:
    file.exchange(A, [Beat(), Claim(0, 1, Lease())])
    for each in tmp_path.iterdir():
        each.unlink()
    if replaced:
        another = LeaseFile(tmp_path / lease_file.FILE_NAME)
        another.begin(2)
        another.close()
    with raises_reason(Reason.LOG_CORRUPT, "removed or replaced"):
        file.exchange(A, [Beat(), Renew(0, 1)])


@pytest.fixture
async def shared(tmp_path: Path, file: LeaseFile) -> LeaseClient:
    return LeaseClient(FileLeases(DataDirectory(tmp_path), file, A), ManualClock())


async def test_a_busy_file_is_tried_again_with_the_time_of_the_first_attempt(
    tmp_path: Path, file: LeaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(lease_file, "LOCK_TIMEOUT_S", 0.02)
    impatient = LeaseFile(tmp_path / lease_file.FILE_NAME)
    shared = LeaseClient(FileLeases(DataDirectory(tmp_path), impatient, A), clock)
    begun_ms = clock.now_ms()
    with sqlite3.connect(tmp_path / lease_file.FILE_NAME, isolation_level=None) as busy:
        busy.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with raises_reason(Reason.STORAGE_UNAVAILABLE, "locked"):
                await shared.exchange([Claim(0, 1, Lease())])
            clock.advance(100)
        busy.execute("ROLLBACK")
    busy.close()
    seen = await shared.exchange([Beat()])
    assert seen.started_ms == begun_ms
    assert seen.leases[0] == Lease("a:1", "run a", 1)
    assert (await shared.exchange([])).started_ms == begun_ms + 200
    impatient.close()


async def test_a_busy_file_holds_nobody_up(tmp_path: Path, shared: LeaseClient) -> None:
    with sqlite3.connect(tmp_path / lease_file.FILE_NAME, isolation_level=None) as busy:
        busy.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(shared.exchange([Beat()]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        busy.execute("ROLLBACK")
    busy.close()
    assert "a:1" in (await waiting).peers


async def test_whose_lock_is_free_has_ended(
    tmp_path: Path, shared: LeaseClient, file: LeaseFile
) -> None:
    directory = DataDirectory(tmp_path)
    other = await lock_address(directory, B.address)
    file.exchange(B, [Beat(), Claim(0, 1, Lease())])
    assert (await shared.exchange([Beat()])).ended == frozenset()
    other.release()
    assert (await shared.exchange([])).ended == {B.address}


async def test_an_address_is_held_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_file, "LOCK_PAUSE_S", 0)
    directory = DataDirectory(tmp_path)
    held = await lock_address(directory, "a:1")
    with raises_reason(Reason.STORAGE_OWNED):
        await lock_address(directory, "a:1")
    held.release()
    (await lock_address(directory, "a:1")).release()
    assert directory.is_locked(lock_name("a:1")) is False
