"""Plans which parts of a connector a restart request restarts (KIP-745)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drover.model.ids import TaskId
from drover.model.status import RunState


@dataclass(frozen=True, slots=True, order=True)
class RestartRequest:
    """A requested restart; requests are ordered by impact.

    Restarting everything has more impact than restarting only failed parts; including tasks has
    more impact than leaving them out.
    """

    impact: int
    name: str
    only_failed: bool
    include_tasks: bool

    @classmethod
    def of(cls, name: str, *, only_failed: bool, include_tasks: bool) -> "RestartRequest":
        """The request with its impact, from 0 to 3."""
        impact = (0 if only_failed else 2) + (1 if include_tasks else 0)
        return cls(impact, name, only_failed, include_tasks)


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """The parts of one connector that restart."""

    name: str
    restart_connector: bool
    tasks: tuple[TaskId, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing restarts."""
        return not self.restart_connector and not self.tasks


def plan_restart(
    request: RestartRequest,
    *,
    connector_state: RunState,
    task_states: Mapping[TaskId, RunState],
) -> RestartPlan:
    """Plan a restart for the given states; with ``only_failed`` only FAILED parts restart."""
    chosen: Iterable[TaskId] = sorted(task_states) if request.include_tasks else ()
    return RestartPlan(
        name=request.name,
        restart_connector=_restarts(request, connector_state),
        tasks=tuple(task for task in chosen if _restarts(request, task_states[task])),
    )


def preserve_highest_impact(
    pending: Mapping[str, RestartRequest], request: RestartRequest
) -> dict[str, RestartRequest]:
    """Add ``request`` to the pending requests; the one with the highest impact wins."""
    earlier = pending.get(request.name)
    best = request if earlier is None else max(earlier, request)
    return {**pending, request.name: best}


def _restarts(request: RestartRequest, state: RunState) -> bool:
    return not request.only_failed or state is RunState.FAILED
