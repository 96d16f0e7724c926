"""The workers, called with the credential of a request's caller and with nothing else."""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from drover.client import ConnectClient
from drover.client.failover import WatchedStream
from drover.client.secure import Connect, plaintext
from drover.errors import DeadlineExceededError, UnavailableError
from drover.metrics import table
from drover.metrics.metric import Sample
from drover.rpc import WHY_NOT_SERVING_KEY
from drover.rpc.status import from_rpc_error
from drover_gateway.identity.credentials import Caller
from drover_gateway.rest.ports import Health, HealthState

CONNECT_SERVICE = "drover.api.connect.v1.ConnectService"
#: A worker that did not answer gets no calls for this time, while another one can be asked.
_ASIDE_S = 2.0
#: Clients are kept for this number of callers; a further one costs a fraction of a millisecond.
_CLIENTS_MAX = 500
_HEALTH_PAUSE_S = 0.5
#: The beginnings of the names of calls that change nothing.
_READS = ("Describe", "Get", "List", "Plan", "Preview", "Validate", "Watch")
#: Calls about the state of one worker: all of them go to the same one while it answers.
_OF_ONE_WORKER = frozenset({"ListLoggers", "SetLoggerLevel"})

Metadata = tuple[tuple[str, str], ...]


class _Worker:
    """A worker's address with its channel."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.channel = channel
        self.check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        #: On the event loop's clock: before it, other workers are preferred.
        self.aside_until_s = 0.0

    def note_failure(self, error: grpc.RpcError) -> None:
        """Prefer other workers for a while if this one is unavailable or does not respond."""
        if isinstance(from_rpc_error(error), UnavailableError | DeadlineExceededError):
            self.aside_until_s = asyncio.get_running_loop().time() + _ASIDE_S


class Workers:
    """The workers of a cluster, called one after another.

    Each call has the token of its caller and no other right. A call is made once: after
    UNAVAILABLE, the caller's retry goes to another worker.

    Args:
        addresses: host:port of the workers; at least one.
        connect: Opens a channel to a worker.
    """

    def __init__(self, addresses: Sequence[str], *, connect: Connect = plaintext) -> None:
        self._workers = [_Worker(address, connect(address)) for address in addresses]
        self._turns = itertools.cycle(range(len(self._workers)))
        self._clients: OrderedDict[Caller, ConnectClient] = OrderedDict()
        self._failure_count = 0
        #: Called after each call that may have changed something.
        self.on_change: Callable[[Caller], None] = lambda _caller: None

    async def close(self) -> None:
        """Close every connection."""
        for each in self._workers:
            await each.channel.close()

    def client(self, caller: Caller) -> ConnectClient:
        """A client that sends the caller's credential and does not retry."""
        client = self._clients.get(caller)
        if client is None:
            channel = cast("grpc.aio.Channel", _CallerChannel(self, caller))
            client = ConnectClient(channel, retry=False, author=caller.author)
            self._clients[caller] = client
            if len(self._clients) > _CLIENTS_MAX:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(caller)
        return client

    async def health(self, *, timeout_s: float) -> Health:
        """HEALTHY if a worker serves; waits until one answers, at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while (left_s := end_s - loop.time()) > 0:
            checks = [asyncio.create_task(_health_of(each, left_s)) for each in self._workers]
            answers = []
            try:
                for check in asyncio.as_completed(checks):
                    answer = await check
                    if answer.state is HealthState.HEALTHY:
                        return answer
                    answers.append(answer)
            finally:
                for each in checks:
                    each.cancel()
            found = [each for each in answers if each.state is HealthState.STARTING]
            if found:
                return next((each for each in found if each.detail), found[0])
            await asyncio.sleep(min(_HEALTH_PAUSE_S, max(0.0, end_s - loop.time())))
        return Health(HealthState.UNHEALTHY, f"no worker answered within {timeout_s:g} s")

    def pick(self, *, by_turns: bool = True) -> _Worker:
        """The worker for the next call; the first available one unless ``by_turns``."""
        first = next(self._turns) if by_turns else 0
        now_s = asyncio.get_running_loop().time()
        order = [*self._workers[first:], *self._workers[:first]]
        for each in order:
            if each.aside_until_s <= now_s:
                return each
        return min(order, key=lambda each: each.aside_until_s)

    def note_failure(self, worker: _Worker, error: grpc.RpcError) -> None:
        """Count a failed call, and prefer other workers if this one does not answer."""
        self._failure_count += 1
        worker.note_failure(error)

    def samples(self) -> list[Sample]:
        """The metrics of the calls."""
        return [table.GATEWAY_FAILED_CALLS.at(self._failure_count)]


class _CallerChannel:
    """A channel for generated stubs, whose calls go to one worker after the other with the
    credential of one caller.
    """

    def __init__(self, workers: Workers, caller: Caller) -> None:
        self._workers = workers
        self._caller = caller
        self._metadata = caller.metadata

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""
        return self._for_one_response(
            method, lambda channel: channel.unary_unary(method, *codecs, **options)
        )

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""
        return self._for_one_response(
            method, lambda channel: channel.stream_unary(method, *codecs, **options)
        )

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """See ``grpc.aio.Channel``."""

        def call(request: Any, *, timeout: float | None, metadata: Metadata) -> WatchedStream:
            worker = self._workers.pick()
            start = worker.channel.unary_stream(method, *codecs, **options)
            sent = (*metadata, *self._metadata)
            stream = start(request, timeout=timeout, metadata=sent)
            return WatchedStream(stream, partial(self._workers.note_failure, worker))

        return call

    def _for_one_response(
        self, name: str, multicallable: Callable[[grpc.aio.Channel], Any]
    ) -> Callable[..., Any]:
        methods: dict[str, Any] = {}
        rpc = name.rpartition("/")[2]
        is_change = not rpc.startswith(_READS)
        by_turns = rpc not in _OF_ONE_WORKER

        def call(request: Any, *, timeout: float, metadata: Metadata) -> Coroutine[Any, Any, Any]:
            worker = self._workers.pick(by_turns=by_turns)
            method = methods.get(worker.address)
            if method is None:
                method = methods[worker.address] = multicallable(worker.channel)
            sent = (*metadata, *self._metadata)
            call = method(request, timeout=timeout, metadata=sent)
            return self._await(worker, call, is_change=is_change)

        return call

    async def _await(self, worker: _Worker, call: Any, *, is_change: bool) -> Any:
        try:
            return await call
        except grpc.RpcError as error:
            self._workers.note_failure(worker, error)
            raise
        finally:
            if is_change:
                self._workers.on_change(self._caller)


async def _health_of(worker: _Worker, timeout_s: float) -> Health:
    request = health_pb2.HealthCheckRequest(service=CONNECT_SERVICE)
    call: Any = worker.check(request, timeout=timeout_s, metadata=())
    with suppress(grpc.RpcError):
        answer = await call
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return Health(HealthState.HEALTHY)
        return Health(HealthState.STARTING, await _why(call))
    return Health(HealthState.UNHEALTHY)


async def _why(call: Any) -> str:
    """The reason in the trailing metadata; empty without one, and for renewed channels."""
    if not hasattr(call, "trailing_metadata"):
        return ""
    trailing = await call.trailing_metadata()
    return str(next((value for key, value in trailing or () if key == WHY_NOT_SERVING_KEY), ""))
