"""Workers sign their calls to each other, over real gRPC with fake engines."""

from dataclasses import replace

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.calls import channel
from drover.client.worker import Sign, WorkerClient, unsigned
from drover.errors import (
    DroverError,
    PermissionDeniedError,
    Reason,
    UnauthenticatedError,
    UnavailableError,
)
from drover.model.config import SessionKey
from drover.security.signatures import NO_KEY, SIGNATURE_KEY, sign
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster


async def key_on(*workers: RunningWorker, other_than: SessionKey | None = None) -> SessionKey:
    """Wait until these workers have read the same key; returns it."""

    def one() -> bool:
        keys = {worker.herder.session_keys.current for worker in workers}
        return len(keys) == 1 and not keys & {None, other_than}

    await wait_until_async(one)
    key = workers[0].herder.session_keys.current
    assert key is not None
    return key


def signing(key: SessionKey) -> Sign:
    """Signs calls as a worker with this key does."""

    def made(method: str, body: bytes) -> tuple[tuple[str, str], ...]:
        return ((SIGNATURE_KEY, sign(key, "HmacSHA256", method, body).encode()),)

    return made


def without_key(method: str, body: bytes) -> tuple[tuple[str, str], ...]:
    """Signs a call as a worker does that has read no key."""
    del method, body
    return ((SIGNATURE_KEY, NO_KEY),)


async def answer_to(
    worker: RunningWorker, sign: Sign, *, retry: bool = False
) -> DroverError | None:
    """The error of a call with such a signature; None if the call succeeds."""
    request = pb.GetClusterInfoRequest().SerializeToString()
    async with channel(worker.internal_address) as own:
        try:
            await WorkerClient(own, sign).forward(
                method="GetClusterInfo", request=request, hop_count=1, retry=retry
            )
        except DroverError as error:
            return error
    return None


async def create_by(worker: RunningWorker, name: str) -> None:
    config = {"connector.class": SOURCE, "tasks.max": "2"}
    await worker.stub.CreateConnector(
        pb.CreateConnectorRequest(name=name, config=config), timeout=20
    )


async def test_calls_between_workers_are_let_in_by_their_signature_alone(
    cluster: WorkerCluster,
) -> None:
    leader, follower = workers = await cluster.settled_workers(2)
    assert {worker.herder.membership.protocol_name for worker in workers} == {"sessioned"}
    key = await key_on(leader, follower)
    await create_by(follower, "numbers")  # the follower forwards this call, and its task configs
    await cluster.running("numbers", 2, *workers)

    assert await answer_to(leader, follower.sign) is None
    assert await answer_to(follower, signing(key)) is None
    missing = await answer_to(leader, unsigned)
    assert isinstance(missing, UnauthenticatedError)
    assert missing.reason is Reason.MISSING_CREDENTIALS
    forged_key = SessionKey(b"0" * 32, key.algorithm, key.creation_ms)

    def of_another_call(method: str, body: bytes) -> tuple[tuple[str, str], ...]:
        return signing(key)(method.replace("Forward", "SubmitTaskConfigs"), body)

    for other in (signing(forged_key), of_another_call):
        error = await answer_to(leader, other)
        assert isinstance(error, PermissionDeniedError)
        assert error.reason is Reason.INVALID_SIGNATURE
        assert "\n" not in error.message
    for ms in (-60_000, 60_000):  # a key replaced earlier, or one that the worker has not read yet
        unread = await answer_to(leader, signing(replace(key, creation_ms=key.creation_ms + ms)))
        assert isinstance(unread, UnavailableError)
        assert unread.reason is Reason.SESSION_KEY_UNKNOWN


async def test_a_call_that_was_sent_before_its_caller_had_a_key_is_retried_with_one(
    cluster: WorkerCluster,
) -> None:
    worker = await cluster.add_worker()
    await cluster.settled(worker)
    attempts = [without_key, without_key, signing(await key_on(worker))]

    def next_attempt(method: str, body: bytes) -> tuple[tuple[str, str], ...]:
        return attempts.pop(0)(method, body)

    assert await answer_to(worker, next_attempt, retry=True) is None
    assert not attempts


async def test_a_group_without_a_key_begins_to_sign_when_all_its_workers_can(
    cluster: WorkerCluster,
) -> None:
    old = await cluster.add_worker(connect_protocol="compatible")
    await cluster.settled(old)  # before the others could form a group that signs
    new = [await cluster.add_worker(), await cluster.add_worker()]
    await cluster.settled(old, *new)
    assert {worker.herder.session_keys.current for worker in (old, *new)} == {None}
    await create_by(new[0], "before")
    await cluster.running("before", 2, old, *new)
    await old.service.stop()
    for number, worker in enumerate(new):  # the group may still rebalance and write its key
        await create_by(worker, f"after{number}")
    await cluster.settled(*new)
    await key_on(*new)
    assert {worker.herder.membership.protocol_name for worker in new} == {"sessioned"}


async def test_keys_are_replaced_while_calls_go_on(cluster: WorkerCluster) -> None:
    leader, follower = workers = await cluster.settled_workers(2, inter_worker_key_ttl_ms=1_000)
    key = await key_on(leader, follower)
    seen = {key.key}
    for number in range(2):
        await create_by(follower, f"c{number}")
        key = await key_on(leader, follower, other_than=key)
        seen.add(key.key)
        await cluster.running(f"c{number}", 2, *workers)
    assert len(seen) == 3


async def test_a_group_signs_while_all_its_workers_can(cluster: WorkerCluster) -> None:
    new = await cluster.settled_workers(2)
    await key_on(*new)
    old = await cluster.add_worker(connect_protocol="compatible")
    await cluster.settled(*new, old)
    assert {worker.herder.membership.protocol_name for worker in (*new, old)} == {"compatible"}
    assert await answer_to(new[0], unsigned) is None
    for number, worker in enumerate((*new, old)):
        await create_by(worker, f"mixed{number}")
        await cluster.running(f"mixed{number}", 2, *new, old)
    await old.service.stop()
    await cluster.settled(*new)
    assert {worker.herder.membership.protocol_name for worker in new} == {"sessioned"}
    assert isinstance(await answer_to(new[0], unsigned), UnauthenticatedError)
    for worker in new:
        await create_by(worker, f"alone{new.index(worker)}")


async def test_no_client_sees_the_key(worker: RunningWorker) -> None:
    messages: list[str] = []
    watch = worker.stub.WatchConnectors(pb.WatchConnectorsRequest())

    key = await key_on(worker)
    await create_by(worker, "numbers")
    while "numbers" not in "".join(messages):
        messages.append(str(await anext(aiter(watch))))
    watch.cancel()
    history = await worker.stub.GetConnectorHistory(
        pb.GetConnectorHistoryRequest(name="numbers"), timeout=20
    )
    info = await worker.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
    shown = "".join([*messages, str(history), str(info)])
    assert str(key.key)[2:-1] not in shown
