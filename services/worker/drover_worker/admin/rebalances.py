"""ListRebalances: the rebalances that the workers led, merged."""

from collections.abc import Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import encode_duration, encode_timestamp, invalid_field
from drover.model.ids import TaskId
from drover_worker.admin.call import AdminCall
from drover_worker.admin.every_worker import EveryWorker
from drover_worker.admin.forwarding import ForwardedMethod
from drover_worker.admin.paging import take_page
from drover_worker.core.rebalance.log import REBALANCES_MAX, Move, Rebalance
from drover_worker.shell.herder_loop import HerderLoop

LIST = ForwardedMethod("ListRebalances", pb.ListRebalancesRequest, pb.ListRebalancesResponse)
_PAGE_SIZE_DEFAULT = 50

#: Reasons of a leader that do not name the cause: another member began the rebalance.
_OF_OTHERS = frozenset(
    {"the group rebalances", "another rebalance started", "the worker is ready", ""}
)


class Rebalances:
    """Lists the last rebalances of the group."""

    def __init__(self, worker_id: str, loop: HerderLoop, every_worker: EveryWorker) -> None:
        self._worker_id = worker_id
        self._log = loop.herder.membership.rebalances
        self._every_worker = every_worker

    async def list_page(
        self, request: pb.ListRebalancesRequest, call: AdminCall
    ) -> pb.ListRebalancesResponse:
        """Return a page of rebalances; all of them to another worker."""
        if not 0 <= request.page_size <= REBALANCES_MAX:
            raise invalid_field("page_size", f"must be from 0 to {REBALANCES_MAX}")
        found = await self._every_worker.answer(
            LIST,
            pb.ListRebalancesRequest(),
            self._own(),
            merged,
            hop_count=call.hop_count,
            waits=True,
        )
        if call.hop_count:
            return found
        for each in found.rebalances:
            _hide(each, call)
        page, token = take_page(
            found.rebalances,
            request.page_token,
            count_max=request.page_size or _PAGE_SIZE_DEFAULT,
            size_bytes=lambda each: each.ByteSize(),
        )
        return pb.ListRebalancesResponse(
            rebalances=page, next_page_token=token, silent_worker_ids=found.silent_worker_ids
        )

    def _own(self) -> pb.ListRebalancesResponse:
        shown = [_encode(each, self._worker_id) for each in self._log.all()]
        return pb.ListRebalancesResponse(rebalances=reversed(shown))


def merged(
    responses: Mapping[str, pb.ListRebalancesResponse | None],
) -> pb.ListRebalancesResponse:
    """Merge the rebalances of all workers, by worker id; None for one that did not respond.

    The workers that joined and left are the differences from one rebalance to the next.
    """
    found = [each for response in responses.values() if response for each in response.rebalances]
    found.sort(key=lambda each: (each.begin_time.ToNanoseconds(), each.generation), reverse=True)
    del found[REBALANCES_MAX:]
    before_them: Sequence[pb.Rebalance | None] = [*found[1:], None][: len(found)]
    changes = [_changes(each, before) for each, before in zip(found, before_them, strict=True)]
    for each, (joined, left, reason) in zip(found, changes, strict=True):
        each.joined_worker_ids.extend(joined)
        each.left_worker_ids.extend(left)
        each.reason = reason
    silent = sorted(worker_id for worker_id, each in responses.items() if each is None)
    return pb.ListRebalancesResponse(rebalances=found, silent_worker_ids=silent)


def _changes(
    rebalance: pb.Rebalance, before: pb.Rebalance | None
) -> tuple[Sequence[str], Sequence[str], str]:
    """The workers that joined and left, and the reason in words."""
    if before is None:
        return (), (), _first_reason(rebalance)
    now, then = set(rebalance.worker_ids), set(before.worker_ids)
    joined, left = sorted(now - then), sorted(then - now)
    drained = sorted(set(rebalance.draining_worker_ids) - set(before.draining_worker_ids))
    resumed = sorted((set(before.draining_worker_ids) - set(rebalance.draining_worker_ids)) & now)
    causes = [
        *(f"{each} joined" for each in joined),
        *(f"{each} left or was lost" for each in left),
        *(f"{each} drains" for each in drained),
        *(f"{each} accepts work again" for each in resumed),
    ]
    if rebalance.reason not in _OF_OTHERS:
        causes.append(rebalance.reason)
    return joined, left, ", ".join(causes) or _other_reason(rebalance)


def _first_reason(rebalance: pb.Rebalance) -> str:
    return "the first one that is known" if rebalance.reason in _OF_OTHERS else rebalance.reason


def _other_reason(rebalance: pb.Rebalance) -> str:
    if any(not each.from_worker_id for each in rebalance.moves):
        return "connectors or tasks changed"
    return "a worker joined again"


def _encode(rebalance: Rebalance, leader: str) -> pb.Rebalance:
    return pb.Rebalance(
        begin_time=encode_timestamp(rebalance.begin_ms),
        duration=(
            None if rebalance.duration_ms is None else encode_duration(rebalance.duration_ms)
        ),
        generation=rebalance.generation,
        leader_worker_id=leader,
        reason=rebalance.reason,
        worker_ids=rebalance.workers,
        draining_worker_ids=rebalance.draining,
        moves=[_encode_move(each) for each in rebalance.moves],
        moved_connector_count=rebalance.moved_connector_count,
        moved_task_count=rebalance.moved_task_count,
    )


def _encode_move(move: Move) -> pb.RebalanceMove:
    key = move.key
    return pb.RebalanceMove(
        connector=key.connector if isinstance(key, TaskId) else key,
        task=key.task if isinstance(key, TaskId) else None,
        from_worker_id=move.from_worker,
        to_worker_id=move.to_worker,
    )


def _hide(rebalance: pb.Rebalance, call: AdminCall) -> None:
    """Remove what the caller may not see."""
    if call.sees_all:
        return
    visible = [each for each in rebalance.moves if call.may_see(each.connector)]
    del rebalance.moves[:]
    rebalance.moves.extend(visible)
    rebalance.moved_task_count = sum(each.HasField("task") for each in visible)
    rebalance.moved_connector_count = len(visible) - rebalance.moved_task_count
