"""Session keys between workers: when the leader writes one, and which calls are admitted."""

from dataclasses import replace

import pytest

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    PermissionDeniedError,
    Reason,
    UnauthenticatedError,
    UnavailableError,
)
from drover.model.config import ConfigSnapshot, SessionKey, SessionKeyUpdated
from drover.security.signatures import NO_KEY
from drover_worker.core import events, instructions
from drover_worker.core.config.session_keys import GRACE_MS
from drover_worker.core.context import HerderSettings
from tests.support.herder_driver import ME, HerderDriver

METHOD = "/drover.api.worker.v1.WorkerService/Forward"
SETTINGS = HerderSettings(
    worker_id=ME,
    group_id="drover",
    connect_protocol="sessioned",
    key_ttl_ms=10_000,
    session_timeout_ms=10_000_000,
    heartbeat_interval_ms=5_000_000,
)
KEY, NEXT_KEY = b"1" * 32, b"2" * 32


@pytest.fixture
def worker() -> HerderDriver:
    """A worker that has not joined a group yet."""
    herder = HerderDriver(SETTINGS, protocol="sessioned")
    herder.ready()
    return herder


@pytest.fixture
def leader(worker: HerderDriver) -> HerderDriver:
    worker.settle_as_leader()
    return worker


def written(leader: HerderDriver, key: bytes) -> SessionKey:
    """Let the leader write its key and read it."""
    write = leader.take(instructions.WriteSessionKey)
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1))
    return leader.session_key(key)


def signed(worker: HerderDriver, method: str = METHOD, body: bytes = b"request") -> str:
    return worker.herder.signatures.sign(method, body)


def refusal(worker: HerderDriver, shown: str, body: bytes = b"request") -> DroverError | None:
    try:
        worker.herder.signatures.check(METHOD, body, shown, worker.now_ms)
    except DroverError as error:
        return error
    return None


def test_a_leader_without_a_key_writes_one(leader: HerderDriver) -> None:
    write = leader.take(instructions.WriteSessionKey)
    assert (write.algorithm, write.size_bytes, write.writer_epoch) == ("HmacSHA256", 32, 7)
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1))
    leader.session_key(KEY)
    leader.advance(SETTINGS.key_ttl_ms - 1)
    assert not leader.find(instructions.WriteSessionKey)


def test_a_leader_writes_the_next_key_when_one_is_as_old_as_it_gets(leader: HerderDriver) -> None:
    written(leader, KEY)
    leader.advance(SETTINGS.key_ttl_ms)
    written(leader, NEXT_KEY)
    leader.advance(SETTINGS.key_ttl_ms - 1)
    assert not leader.find(instructions.WriteSessionKey)


def test_a_follower_writes_none(worker: HerderDriver) -> None:
    worker.settle_as_follower()
    worker.session_key(KEY)
    worker.advance(2 * SETTINGS.key_ttl_ms)
    assert not worker.find(instructions.WriteSessionKey)


@pytest.mark.parametrize(
    ("key", "algorithm", "age_ms", "writes"),
    [
        (KEY, "HmacSHA256", 0, False),
        (KEY, "HmacSHA256", -60_000, False),  # the key's writer has a clock that is ahead
        (KEY, "HmacSHA256", SETTINGS.key_ttl_ms, True),
        (KEY, "HmacSHA512", 0, True),
        (KEY[:-1], "HmacSHA256", 0, True),
    ],
)
def test_a_new_leader_goes_on_with_a_key_that_is_fresh_and_of_its_settings(
    key: bytes, algorithm: str, age_ms: int, writes: bool
) -> None:
    herder = HerderDriver(SETTINGS, protocol="sessioned")
    session_key = SessionKey(key, algorithm, herder.now_ms - age_ms)
    herder.step(events.ConfigsLoaded(ConfigSnapshot(0, {}, {}, session_key)))
    herder.ready()
    herder.settle_as_leader()
    assert bool(herder.find(instructions.WriteSessionKey)) is writes


def test_clocks_that_differ_do_not_let_a_leader_write_without_end(leader: HerderDriver) -> None:
    write = leader.take(instructions.WriteSessionKey)
    leader.step(events.ConfigWritten(write.cause_id, leader.offset + 1))
    leader.now_ms += 100 * SETTINGS.key_ttl_ms  # the store's clock is far behind
    leader.session_key(KEY)
    assert not leader.find(instructions.WriteSessionKey)


def test_a_key_that_could_not_be_written_is_tried_again(leader: HerderDriver) -> None:
    write = leader.take(instructions.WriteSessionKey)
    leader.fail(write.cause_id, UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers"))
    assert not leader.find(instructions.WriteSessionKey)
    leader.advance(SETTINGS.retry_backoff_ms)
    written(leader, KEY)


def test_a_leader_that_was_fenced_claims_the_log_first(leader: HerderDriver) -> None:
    write = leader.take(instructions.WriteSessionKey)
    fenced = FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "another one writes")
    leader.fail(write.cause_id, fenced)
    leader.advance(SETTINGS.retry_backoff_ms)
    assert not leader.find(instructions.WriteSessionKey)
    leader.grant_writer(epoch=8)
    assert leader.take(instructions.WriteSessionKey).writer_epoch == 8


def test_a_group_that_does_not_sign_has_no_key(worker: HerderDriver) -> None:
    worker.protocol = "compatible"
    worker.settle_as_leader()
    assert not worker.find(instructions.WriteSessionKey)
    assert signed(worker) == NO_KEY
    assert refusal(worker, NO_KEY) is None
    assert refusal(worker, "") is None


def test_the_group_signs_once_all_do_and_no_longer_when_one_does_not(leader: HerderDriver) -> None:
    written(leader, KEY)
    assert isinstance(refusal(leader, ""), UnauthenticatedError)
    for generation, protocol in ((2, "compatible"), (3, "default"), (4, "sessioned")):
        leader.protocol = protocol
        member_id = leader.member_id
        leader.step(events.GroupPushed(member_id, generation - 1, rejoin_needed=True))
        leader.settle_as_leader(generation=generation)
        assert leader.herder.membership.protocol_name == protocol
        assert (refusal(leader, "") is None) is (protocol != "sessioned")


def test_a_worker_offers_what_it_knows_preferred_first(worker: HerderDriver) -> None:
    names = [each.name for each in worker.take(instructions.JoinGroup).protocols]
    assert names == ["sessioned", "compatible", "default"]


def test_who_has_no_key_yet_says_that_the_call_can_be_made_again(worker: HerderDriver) -> None:
    error = refusal(worker, "")
    assert isinstance(error, UnavailableError)
    assert error.reason is Reason.SESSION_KEY_UNKNOWN
    with pytest.raises(UnavailableError, match="not read the session key"):
        worker.herder.signatures.sign(METHOD, b"")


@pytest.fixture
def without_key() -> HerderDriver:
    """A worker in a generation without signatures, which has read no session key."""
    worker = HerderDriver(SETTINGS, protocol="compatible")
    worker.ready()
    worker.settle_as_follower()
    return worker


def test_a_call_that_was_sent_before_its_caller_had_a_key_is_retried_with_one(
    leader: HerderDriver, without_key: HerderDriver
) -> None:
    sent_before = signed(without_key)
    key = written(leader, KEY)
    error = refusal(leader, sent_before)
    assert isinstance(error, UnavailableError)
    assert error.reason is Reason.SESSION_KEY_UNKNOWN

    without_key.change(SessionKeyUpdated(key))
    assert without_key.herder.membership.protocol_name == "compatible"
    assert refusal(leader, signed(without_key)) is None  # it is still in the earlier generation


def test_a_group_that_signs_never_admits_a_call_without_a_signature(
    worker: HerderDriver,
) -> None:
    """Neither before the first key, nor in a rebalance, nor after the key is replaced."""

    def reasons() -> list[Reason | None]:
        errors = [refusal(worker, shown) for shown in (NO_KEY, "")]
        return [error.reason if error is not None else None for error in errors]

    retried, refused = Reason.SESSION_KEY_UNKNOWN, Reason.MISSING_CREDENTIALS
    assert reasons() == [retried, retried]
    worker.settle_as_leader()
    assert reasons() == [retried, retried]
    written(worker, KEY)
    assert reasons() == [retried, refused]
    worker.step(events.GroupPushed(worker.member_id, 1, rejoin_needed=True))
    assert reasons() == [retried, refused]
    worker.settle_as_leader(generation=2)
    worker.advance(SETTINGS.key_ttl_ms)
    written(worker, NEXT_KEY)
    worker.advance(GRACE_MS)
    assert reasons() == [retried, refused]


def test_a_call_is_let_in_by_its_signature_alone(leader: HerderDriver) -> None:
    written(leader, KEY)
    good = signed(leader)
    assert refusal(leader, good) is None
    for shown in (
        "nonsense",
        good[:-5] + "AAAA=",
        signed(leader, METHOD + "s"),
        signed(leader, body=b"another"),
        good.replace("HmacSHA256", "HmacSHA512"),
        good.replace("HmacSHA256", "none"),
    ):
        error = refusal(leader, shown)
        assert isinstance(error, PermissionDeniedError), shown
        assert error.reason is Reason.INVALID_SIGNATURE
        assert KEY.decode() not in error.message


def test_the_key_before_is_good_for_a_while(leader: HerderDriver) -> None:
    written(leader, KEY)
    leader.advance(SETTINGS.key_ttl_ms)
    before = signed(leader)
    written(leader, NEXT_KEY)
    assert signed(leader) != before
    assert refusal(leader, before) is None
    leader.now_ms += GRACE_MS
    error = refusal(leader, before)
    assert isinstance(error, UnavailableError)
    assert error.reason is Reason.SESSION_KEY_UNKNOWN


def test_a_key_that_is_not_read_yet_is_waited_for(leader: HerderDriver) -> None:
    written(leader, KEY)
    ahead = HerderDriver(replace(SETTINGS), protocol="sessioned")
    ahead.now_ms = leader.now_ms + 5
    ahead.ready()
    ahead.session_key(NEXT_KEY)
    assert isinstance(refusal(leader, signed(ahead)), UnavailableError)


def test_no_key_is_ever_shown(leader: HerderDriver) -> None:
    key = written(leader, KEY)
    shown = f"{key!r} {leader.herder.session_keys.current!r} {signed(leader)}"
    assert KEY.decode() not in shown
