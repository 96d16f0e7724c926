"""The pages of dead letters: their causes, single ones, and what is done with them."""

from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from drover.api.common.v1.topics_pb2 import RecordQuery, TopicRecord
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.client.calls import new_request_id
from drover.codec.dead_letters import decode_states
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Reason,
)
from drover.model.dead_letters import DEAD_LETTER_TOPIC, parse_ranges
from drover.model.letter_states import (
    LetterState,
    OffsetSet,
    StatesNow,
    count_of,
    offsets_of_ranges,
    within,
)
from drover_gateway.console import dead_letters_page as html
from drover_gateway.console.connector_page import tabs_html
from drover_gateway.console.frame import CONNECTORS, DEAD_LETTERS, TOPICS, page
from drover_gateway.console.html import Node, join
from drover_gateway.console.http import PageError, Response
from drover_gateway.console.letter_groups import (
    CHECK,
    DISCARD,
    PROGRESS,
    REPLAY,
    RUN,
    Cause,
    Selection,
    cause_of,
    groups_of,
    is_of,
    place_of,
    progress_url,
)
from drover_gateway.console.links import connector_url, edit_url
from drover_gateway.console.pages import Context, Pages, Request, redirect
from drover_gateway.console.record_windows import Positions
from drover_gateway.console.replay_page import progress_html

#: How many of the last dead letters are grouped, and listed for a cause.
GROUPED, LISTED = 1_000, 200
#: Headers of a dead letter may be large: a stack trace, and all headers of its record.
BYTES_MAX = 32 * 1024 * 1024
#: A page with the progress of a replay is loaded again after this time.
_REFRESH_S = 2
_TITLES = {REPLAY: "Replay dead letters", DISCARD: "Discard dead letters"}


@dataclass(frozen=True, slots=True)
class _Queue:
    """The dead letter queue of a connector; ``decoder`` names it if its converters decode it."""

    connector: str
    topic: str
    decoder: str


class DeadLettersPages(Pages):
    """Connectors with dead letters, the causes of one connector, and one dead letter."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.routes = {
            ("GET", DEAD_LETTERS): self._show,
            ("POST", CHECK): self._check,
            ("POST", RUN): self._run,
            ("GET", PROGRESS): self._progress,
        }

    async def _show(self, request: Request) -> Response:
        name = request.query.one("connector")
        if not name:
            return await self._connectors(request)
        client = self._context.client(request)
        queue = await _queue_of(client, name)
        title = f"Dead letters of {name}"
        content: Node
        try:
            states = decode_states(await client.dead_letter_states(name))
            if request.query.one("letter"):
                place = place_of(request.query.one("letter"))
                letter = await _letter(client, queue, place)
                content = html.letter_html(request.visit, name, queue.topic, letter, states)
            elif request.query.all("cause"):
                cause = Cause(request.query.one("stage"), request.query.one("cause"))
                letters = await _letters_of_cause(client, queue, cause)
                content = html.cause_html(request.visit, name, cause, letters, states, LISTED)
            else:
                letters, is_cut = await _last_letters(client, queue)
                groups = groups_of((each for each in letters if is_of(each, name)), states)
                content = html.groups_html(
                    request.visit, name, queue.topic, groups, len(letters) if is_cut else 0
                )
        except PermissionDeniedError as error:
            content = html.forbidden_html(request.visit, name, error.message)
        except NotFoundError as error:
            if error.reason is not Reason.TOPIC_NOT_FOUND:
                raise
            content = html.none_html(queue.topic)
        content = join(tabs_html(request.visit, name, "dead-letters"), content)
        return Response(page(request.visit, title, content, current=CONNECTORS))

    async def _connectors(self, request: Request) -> Response:
        view = await self._context.views.opened(request.caller)
        rows = await self._context.shown.of(view).rows(view)
        found = []
        for row in rows:
            connector = view.connector(row.name)
            topic = "" if connector is None else connector.config.get(DEAD_LETTER_TOPIC, "").strip()
            if topic:
                found.append((row.name, topic, row.dead_lettered_count))
        content = html.connectors_html(found)
        return Response(page(request.visit, "Dead letters", content, current=TOPICS))

    async def _check(self, request: Request) -> Response:
        """What a replay, or discarding, would do."""
        form, action = request.form, _action(request)
        client = self._context.client(request)
        selection = await _with_places(client, Selection.read(form))
        request_id, force = new_request_id(), bool(form.one("force"))
        reason = form.one("reason").strip()
        if action == REPLAY:
            try:
                replayed = await client.replay_dead_letters(
                    selection.replay(dry_run=True, force=force, request_id=request_id)
                )
            except InvalidArgumentError as error:
                if not selection.repair:
                    raise
                return await self._not_repaired(request, selection, error)
            content = html.replay_check_html(
                request.visit, selection, replayed, request_id, force=force
            )
        else:
            if not reason:
                raise PageError(
                    400, "The reason is missing", "Enter why they are discarded, for the history."
                )
            discarded = await client.discard_dead_letters(
                selection.discard(dry_run=True, reason=reason, request_id=request_id)
            )
            content = html.discard_check_html(
                request.visit, selection, discarded, request_id, reason
            )
        return Response(page(request.visit, f"{_TITLES[action]}?", content, current=TOPICS))

    async def _not_repaired(
        self, request: Request, selection: Selection, error: InvalidArgumentError
    ) -> Response:
        """The page of the dead letter again, with what was entered and what is wrong with it."""
        client, name = self._context.client(request), selection.connector
        queue = await _queue_of(client, name)
        letter = await _letter(client, queue, selection.letters[0])
        states = decode_states(await client.dead_letter_states(name))
        faults = [
            f"{each.field.partition('.')[2] or 'record'}: {each.description}"
            for each in error.violations
        ]
        content = html.letter_html(
            request.visit,
            name,
            queue.topic,
            letter,
            states,
            selection.repair,
            faults or [error.message],
        )
        title = f"Dead letters of {name}"
        return Response(page(request.visit, title, content, current=TOPICS), 400)

    async def _run(self, request: Request) -> Response:
        form, action = request.form, _action(request)
        selection, client = Selection.read(form), self._context.client(request)
        request_id = form.one("request_id")
        if action == REPLAY:
            ends = await _ends(client, await _queue_of(client, selection.connector))
            replayed = await client.replay_dead_letters(
                selection.replay(
                    dry_run=False, force=bool(form.one("force")), request_id=request_id
                )
            )
            return redirect(progress_url(selection.connector, replayed.ranges, ends))
        discarded = await client.discard_dead_letters(
            selection.discard(dry_run=False, reason=form.one("reason"), request_id=request_id)
        )
        content = html.discarded_html(selection, discarded)
        return Response(page(request.visit, _TITLES[action], content, current=TOPICS))

    async def _progress(self, request: Request) -> Response:
        """How far a replay is, and which of its dead letters failed again."""
        name, client = request.query.one("connector"), self._context.client(request)
        try:
            wanted = offsets_of_ranges(parse_ranges(request.query.one("ranges")))
        except ValueError as error:
            text = f"ranges {error}."
            raise PageError(400, "The request cannot be read", text) from None
        ends = Positions.parsed(request.query.one("ends")) if request.query.one("ends") else None
        queue = await _queue_of(client, name)
        states = decode_states(await client.dead_letter_states(name))
        left = count_of(within(wanted, states.replaying))
        total = count_of(wanted)
        why = ""
        letters: Sequence[TopicRecord] = ()
        try:
            letters, _ = await _last_letters(client, queue)
        except (PermissionDeniedError, NotFoundError) as failed:
            why = failed.message
        own = [each for each in letters if is_of(each, name)]
        chosen = [each for each in own if each.offset in wanted.get(each.partition, OffsetSet())]
        begun = ends.offsets if ends is not None else {}
        later = [each for each in own if each.offset >= begun.get(each.partition, each.offset + 1)]
        # a repaired dead letter is written to the end of its queue, and replayed from there
        again = [
            each
            for each in later
            if states.state_of(each.partition, each.offset) is LetterState.OPEN
        ]
        entry = (await self._context.views.opened(request.caller)).connector(name)
        target = 0 if entry is None else entry.target_state
        content = progress_html(
            name,
            total=total,
            left=left,
            chosen=groups_of(chosen, states),
            again=groups_of(again, StatesNow()),
            is_started=target == pb.TARGET_STATE_STARTED,
            error=why,
        )
        headers = (("refresh", str(_REFRESH_S)),) if left else ()
        title = f"Replay of dead letters of {name}"
        return Response(page(request.visit, title, content, current=TOPICS), headers=headers)


def _action(request: Request) -> str:
    action = request.form.one("action")
    if action not in _TITLES:
        raise PageError(400, "Unknown action", f"An action is one of {', '.join(_TITLES)}.")
    return action


async def _queue_of(client: ConnectClient, name: str) -> _Queue:
    found = await client.get_connector(name)
    topic = found.config.get(DEAD_LETTER_TOPIC, "").strip()
    if not topic:
        raise PageError(
            404,
            "The connector has no dead letters",
            f"{name} has no dead letter queue: set {DEAD_LETTER_TOPIC} and errors.tolerance=all in"
            " its config.",
            [
                (f"Edit the config of {name}", edit_url(name)),
                (f"Back to {name}", connector_url(name)),
            ],
        )
    return _Queue(name, topic, name if found.type == pb.CONNECTOR_TYPE_SINK else "")


async def _last_letters(client: ConnectClient, queue: _Queue) -> tuple[list[TopicRecord], bool]:
    """The last dead letters, without their values, and whether there may be more."""
    query = RecordQuery(topic=queue.topic, paths=["offset"])
    letters, is_large = await _read(client, pb.WatchTopicRequest(query=query, last_count=GROUPED))
    return letters, is_large or len(letters) == GROUPED


async def _letters_of_cause(
    client: ConnectClient, queue: _Queue, cause: Cause
) -> list[TopicRecord]:
    """The last dead letters with a cause."""
    if not cause.has_conditions:
        letters, _ = await _last_letters(client, queue)
        own = (each for each in letters if is_of(each, queue.connector))
        return [each for each in own if cause_of(each) == cause][-LISTED:]
    query = RecordQuery(topic=queue.topic, conditions=cause.conditions)
    request = pb.WatchTopicRequest(query=query, connector=queue.decoder, last_count=LISTED)
    letters, _ = await _read(client, request)
    return [each for each in letters if is_of(each, queue.connector)]


async def _with_places(client: ConnectClient, selection: Selection) -> Selection:
    """The selection, with the places of its dead letters if no conditions select them."""
    name, cause = selection.connector, selection.cause
    if cause is None or cause.has_conditions:
        return selection
    letters = await _letters_of_cause(client, await _queue_of(client, name), cause)
    states = decode_states(await client.dead_letter_states(name))
    places = [(each.partition, each.offset) for each in letters]
    chosen = [each for each in places if states.state_of(*each) is LetterState.OPEN]
    if not chosen:
        raise PageError(400, "Nothing is selected", "No dead letter of this cause is open.")
    return Selection(name, letters=tuple(chosen))


async def _letter(client: ConnectClient, queue: _Queue, place: tuple[int, int]) -> TopicRecord:
    partition, offset = place
    request = pb.WatchTopicRequest(
        query=RecordQuery(topic=queue.topic, partitions=[partition]),
        connector=queue.decoder,
        start_offset=offset,
        record_count_max=1,
    )
    try:
        found, _ = await _read(client, request)
    except PermissionDeniedError:
        raise
    except DroverError as error:
        if error.reason is not Reason.INVALID_REQUEST:
            raise
        found = []
    if not found or found[0].offset != offset:
        text = f"{queue.topic} has no record {partition}:{offset}: retention may have removed it."
        raise PageError(404, "There is no such dead letter", text)
    return found[0]


async def _read(
    client: ConnectClient, request: pb.WatchTopicRequest
) -> tuple[list[TopicRecord], bool]:
    """As many of the last records as fit into ``BYTES_MAX``, and whether others do not fit."""
    kept: deque[TopicRecord] = deque()
    size_bytes, is_large = 0, False
    async with aclosing(client.watch_topic(request)) as responses:
        async for response in responses:
            for record in response.records:
                kept.append(record)
                size_bytes += record.ByteSize()
                while size_bytes > BYTES_MAX and len(kept) > 1:
                    size_bytes -= kept.popleft().ByteSize()
                    is_large = True
    return list(kept), is_large


async def _ends(client: ConnectClient, queue: _Queue) -> dict[int, int]:
    """The ends of the queue; none if the caller may not see topics."""
    try:
        described = await client.describe_topic(queue.topic)
    except PermissionDeniedError:
        return {}
    return {each.partition: each.end_offset for each in described.partitions}
