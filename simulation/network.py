"""The network between processes: calls and streams are delayed, lost, duplicated or cut off.

It guarantees what gRPC over TCP does: a stream delivers its messages in order or breaks. A call
reaches its server any number of times; its client gets exactly one result: the first response, an
error, or its own deadline. Calls overtake one another.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from drover.errors import DeadlineExceededError, DroverError, Reason, UnavailableError
from simulation.mix import Mix
from simulation.process import Process
from simulation.world import Action, World

Heard = Callable[[object], None]

#: The time until an endpoint detects a broken connection, if it does.
BREAK_MS = (50, 1_500)
RETRY_FIRST_MS = 100
RETRY_MAX_MS = 1_000
REFUSED = UnavailableError(Reason.SERVICE_UNREACHABLE, "connection refused")
BROKEN = UnavailableError(Reason.SERVICE_UNREACHABLE, "connection broken")
TOO_LATE = DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "no response before the deadline")


class Network:
    """The processes by name, and the messages between them."""

    def __init__(self, world: World, mix: Mix) -> None:
        self.world = world
        self.mix = mix
        self.processes: dict[str, Process] = {}
        #: Blocked links: (source, target).
        self.blocked: set[tuple[str, str]] = set()

    def delay_ms(self) -> int:
        """Draw a message's delay."""
        world, mix = self.world, self.mix
        if world.chance(mix.late_probability):
            return world.between(1, mix.late_max_ms)
        return world.between(1, mix.delay_max_ms)

    def loses(self, source: str, target: str) -> bool:
        """Whether a message is lost."""
        return (source, target) in self.blocked or self.world.chance(self.mix.loss)

    def carry(self, source: str, target: Process, incarnation: int, action: Action) -> bool:
        """Deliver a message to an incarnation of ``target``; returns False when it is lost."""
        if self.loses(source, target.name):
            return False
        self.world.after(self.delay_ms(), partial(target.wake, incarnation, action))
        return True


class Call:
    """One unary call, over as many attempts as its deadline allows.

    Args:
        network: Carries it.
        client: The caller; gets no result after it crashed.
        server: The server's name.
        request: The request.
        heard: Gets the response or a DroverError, once.
        timeout_ms: For all attempts.
        retry: Whether an unanswered call may be repeated.
        renew: Builds the request of each further attempt, where it differs.
        in_order: For a client that makes one such call at a time over one connection: no copy of a
            call arrives after the client has sent the next one.
    """

    __slots__ = (
        "_attempt_count",
        "_deadline_ms",
        "_heard",
        "_in_order",
        "_incarnation",
        "_network",
        "_renew",
        "_retry",
        "_served",
        "client",
        "request",
        "server",
    )

    def __init__(
        self,
        network: Network,
        client: Process,
        server: str,
        request: object,
        heard: Heard,
        *,
        timeout_ms: int,
        retry: bool,
        renew: Callable[[], object] | None = None,
        in_order: bool = False,
    ) -> None:
        self._network = network
        self.client = client
        self.server = server
        self.request = request
        self._heard: Heard | None = heard
        self._retry = retry
        self._renew = renew
        self._in_order = in_order
        self._deadline_ms = client.now_ms + timeout_ms
        self._attempt_count = 0
        self._incarnation = client.incarnation
        self._served: list[ServerCall] = []
        client.calls[self] = None
        client.after(timeout_ms, self._expire)
        self._attempt()

    def hear(self, attempt: int, result: object) -> None:
        """Receive a response, or the error of an attempt that gets none."""
        if self._heard is None or attempt != self._attempt_count:
            return
        if self._retry and isinstance(result, UnavailableError):
            pause_ms = min(RETRY_FIRST_MS << self._attempt_count, RETRY_MAX_MS)
            if self.client.now_ms + pause_ms < self._deadline_ms:
                self._attempt_count += 1  # drops any further result of the last attempt
                self.client.after(pause_ms, self._attempt_again)
                return
        self._finish(result)

    def client_gone(self) -> None:
        """The client crashed: the servers see its connections break."""
        self._heard = None
        self._cancel()

    def cancel(self) -> None:
        """Cancel the call; no result is delivered."""
        self._heard = None
        self.client.calls.pop(self, None)
        self._cancel()

    def _attempt_again(self) -> None:
        if self._renew is not None and self._heard is not None:
            try:
                self.request = self._renew()
            except UnavailableError as error:
                self._attempt_count += 1
                self.hear(self._attempt_count, error)
                return
        self._attempt()

    def _attempt(self) -> None:
        if self._heard is None:
            return
        self._attempt_count += 1
        network, attempt = self._network, self._attempt_count
        world = network.world
        if network.loses(self.client.name, self.server):
            self.unheard(attempt)
        else:
            delay_ms = network.delay_ms()
            world.after(delay_ms, partial(self._arrive, attempt))
            if world.chance(network.mix.duplication):
                world.tell((self.client.name, self.server), "{!r} is doubled", self.request)
                delay_ms += world.between(1, network.mix.late_max_ms)
                world.after(delay_ms, partial(self._arrive, attempt))

    def unheard(self, attempt: int) -> None:
        """A message was lost: the client's connection breaks, or the client notices nothing."""
        if self.client.alive and self._network.world.chance(0.7):
            delay_ms = self._network.world.between(*BREAK_MS)
            broken = partial(self.hear, attempt, BROKEN)
            self._network.world.after(
                delay_ms, partial(self.client.wake, self._incarnation, broken)
            )

    def _arrive(self, attempt: int) -> None:
        if self._in_order and (self._heard is None or attempt != self._attempt_count):
            return  # the client closed that connection before it made the next call
        server = self._network.processes[self.server]
        if server.alive:
            served = ServerCall(self._network, self, attempt, server)
            self._served.append(served)
            server.wake(server.incarnation, partial(server.receive, served))
        else:
            self.come_back(server, attempt, REFUSED)

    def come_back(self, server: Process, attempt: int, result: object) -> None:
        """Send a response to the client."""
        network, world = self._network, self._network.world
        hear = partial(self.hear, attempt, result)
        if not network.carry(server.name, self.client, self._incarnation, hear):
            self.unheard(attempt)
        elif world.chance(network.mix.duplication):
            network.carry(server.name, self.client, self._incarnation, hear)

    def _expire(self) -> None:
        if self._heard is not None:
            self._finish(TOO_LATE)

    def _finish(self, result: object) -> None:
        heard, self._heard = self._heard, None
        self.client.calls.pop(self, None)
        self._cancel()
        assert heard is not None
        heard(result)

    def _cancel(self) -> None:
        for served in self._served:
            if served.is_open and served.on_cancel is not None:
                self._network.carry(
                    self.client.name, served.server, served.incarnation, served.cancel
                )


class ServerCall:
    """One arrival of a call at its server; the server answers it at most once."""

    __slots__ = (
        "_attempt",
        "_call",
        "_network",
        "call_id",
        "client_name",
        "incarnation",
        "is_open",
        "number",
        "on_cancel",
        "request",
        "server",
        "since_ms",
        "timeout_ms",
    )

    def __init__(self, network: Network, call: Call, attempt: int, server: Process) -> None:
        self._network = network
        self._call = call
        self._attempt = attempt
        self.server = server
        self.incarnation = server.incarnation
        self.request = call.request
        self.client_name = call.client.name
        self.timeout_ms = max(call._deadline_ms - call.client.now_ms, 0)
        self.since_ms = network.world.now_ms
        self.number = network.world.next_id()
        self.call_id = str(self.number)
        self.is_open = True
        self.on_cancel: Action | None = None
        server.served[self.number] = self

    def answer(self, result: object) -> None:
        """Answer with a response or a DroverError, unless the call is closed."""
        if self.is_open:
            self._close()
            self._call.come_back(self.server, self._attempt, result)

    def watch_for_cancel(self, on_cancel: Action) -> None:
        """Call ``on_cancel`` when the client cancels or its deadline passes before the answer."""
        self.on_cancel = on_cancel
        self.server.after(self.timeout_ms, self.cancel)

    def cancel(self) -> None:
        """The client cancelled."""
        if self.is_open:
            self._close()
            if self.on_cancel is not None:
                self.on_cancel()

    def server_gone(self) -> None:
        """The server crashed."""
        self.is_open = False
        self._call.come_back(self.server, self._attempt, BROKEN)

    def _close(self) -> None:
        self.is_open = False
        self.server.served.pop(self.number, None)


class Stream:
    """Messages from a server to a client, in order, until the stream breaks.

    Args:
        network: Carries it.
        client: The reader.
        server: The server's name.
        request: The request.
        on_message: Gets each message.
        on_end: Gets the error that ended the stream, once, unless the client cancelled it.
    """

    def __init__(
        self,
        network: Network,
        client: Process,
        server: str,
        request: object,
        on_message: Heard,
        on_end: Callable[[DroverError], None],
    ) -> None:
        self.network = network
        self.request = request
        self.client = client
        self.server = network.processes[server]
        #: Called at the server when it detects that the client is gone.
        self.on_broken: Action | None = None
        self._on_message = on_message
        self._on_end = on_end
        self._client_incarnation = client.incarnation
        self._server_incarnation = -1
        self._client_open = True
        self._server_open = False
        self._cut = False
        self._inbox: deque[object] = deque()
        client.streams[self] = None
        if network.loses(client.name, server):
            self._cut_off()
        else:
            network.world.after(network.delay_ms(), self._arrive)

    def push(self, message: object) -> None:
        """Server: send a message."""
        if not self._server_open or self._cut:
            return
        if self.network.loses(self.server.name, self.client.name):
            self._cut_off()
            return
        self._to_client(message)

    def fail(self, error: DroverError) -> None:
        """Server: end the stream with an error."""
        if self._server_open:
            self._server_open = False
            self.server.streams.pop(self, None)
            if not self._cut:
                self._to_client(error)

    def cancel(self) -> None:
        """Client: cancel the stream."""
        if self._client_open:
            self._client_open = False
            self.client.streams.pop(self, None)
            self._tell_server()

    def end_gone(self, process: Process) -> None:
        """The client or the server crashed."""
        if process is self.client:
            self._client_open = False
            self._tell_server()
        else:
            self._server_open = False
            if not self._cut:
                self._to_client(BROKEN)

    def _arrive(self) -> None:
        if self.server.alive:
            self._server_open = True
            self._server_incarnation = self.server.incarnation
            self.server.streams[self] = None
            opened = partial(self.server.open_stream, self)
            self.server.wake(self._server_incarnation, opened)
            if self._cut or not self._client_open:  # cancelled while the message was in transit
                self._server_breaks(self.network.delay_ms())
        else:
            self._to_client(REFUSED)

    def _tell_server(self) -> None:
        if not self._cut and self.network.loses(self.client.name, self.server.name):
            self._cut_off()
        elif not self._cut:
            self._server_breaks(self.network.delay_ms())

    def _cut_off(self) -> None:
        """Break the connection; each end detects it after its own delay."""
        self._cut = True
        between = self.network.world.between
        self._server_breaks(between(BREAK_MS[0], 2 * BREAK_MS[1]))
        delay_ms = between(BREAK_MS[0], 2 * BREAK_MS[1])
        ended = partial(self._ended, BROKEN)
        self.network.world.after(
            delay_ms, partial(self.client.wake, self._client_incarnation, ended)
        )

    def _server_breaks(self, delay_ms: int) -> None:
        broken = partial(self.server.wake, self._server_incarnation, self._broken)
        self.network.world.after(delay_ms, broken)

    def _broken(self) -> None:
        if self._server_open:
            self._server_open = False
            self.server.streams.pop(self, None)
            if self.on_broken is not None:
                self.on_broken()

    def _to_client(self, message: object) -> None:
        self._inbox.append(message)
        wake = partial(self.client.wake, self._client_incarnation, self._read_one)
        self.network.world.after(self.network.delay_ms(), wake)

    def _read_one(self) -> None:
        """Deliver the oldest queued message: deliveries may overtake, messages may not."""
        message = self._inbox.popleft()
        if not self._client_open or self._cut:
            return
        if isinstance(message, DroverError):
            self._ended(message)
        else:
            self._on_message(message)

    def _ended(self, error: DroverError) -> None:
        if self._client_open:
            self._client_open = False
            self.client.streams.pop(self, None)
            self._on_end(error)
