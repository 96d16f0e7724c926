"""Regenerates task configs of connectors whose committed set is incomplete.

A commit marker may name tasks that the log does not have: compaction removed a record of the set
after another set was started and never finished, or two clusters wrote to the log at once. Such a
connector runs no tasks until a new set is written.
"""

from dataclasses import dataclass

from drover_worker.core.config.reconfigurer import Reconfigurer
from drover_worker.core.context import Context
from drover_worker.core.events import HealDue
from drover_worker.core.lifecycle.connector import ConnectorLifecycle
from drover_worker.core.lifecycle.work import Work

_STILL_INCOMPLETE = (
    "the set of task configs in the config log is still incomplete after it was regenerated {count}"
    " times: the config store may skip unreadable records, which it logs, or another cluster may"
    " write to the same log"
)


@dataclass(slots=True)
class _Attempt:
    """The attempts to regenerate one connector's task configs."""

    count: int = 0
    #: The task configs are being generated or written.
    started: bool = False
    #: The back-off before the next attempt is running.
    waiting: bool = False


class Healing:
    """Regenerates inconsistent task configs of the connectors that run on this worker.

    The first attempt is immediate. The next ones follow a back-off that doubles up to a limit,
    because the cause may damage the next set too. A rebalance does not reset the count of attempts.
    """

    def __init__(self, context: Context, work: Work, reconfigurer: Reconfigurer) -> None:
        self._context = context
        self._work = work
        self._reconfigurer = reconfigurer
        self._attempts: dict[str, _Attempt] = {}

    def pump(self) -> None:
        """Start the attempts that are due."""
        inconsistent = self._context.view.inconsistent
        for name in [name for name in self._attempts if name not in inconsistent]:
            self._forget(name)
        for name in inconsistent:
            connector = self._work.connectors.get(name)
            if connector is not None:
                self._heal(connector)

    def due(self, name: str) -> None:
        """The back-off is over."""
        if name in self._attempts:
            self._attempts[name].waiting = False

    def _heal(self, connector: ConnectorLifecycle) -> None:
        name = connector.name
        attempt = self._attempts.setdefault(name, _Attempt())
        if self._reconfigurer.is_under_way(name):
            attempt.started = True
        elif attempt.started:
            # the write succeeded, but this worker may not have read it back yet
            self._wait(connector, attempt)
        elif not attempt.waiting:
            self._reconfigurer.request(name)
            attempt.started = self._reconfigurer.is_under_way(name)

    def _wait(self, connector: ConnectorLifecycle, attempt: _Attempt) -> None:
        delay_ms = self._context.backoff_ms(attempt.count)
        attempt.count += 1
        attempt.started = False
        attempt.waiting = True
        self._context.set_timer(f"heal:{connector.name}", delay_ms, HealDue(connector.name))
        if attempt.count > 1:
            trace = _STILL_INCOMPLETE.format(count=attempt.count)
            connector.report_trace(self._context, connector.run_id, trace)

    def _forget(self, name: str) -> None:
        attempt = self._attempts.pop(name)
        self._context.cancel_timer(f"heal:{name}")
        connector = self._work.connectors.get(name)
        if attempt.count > 1 and connector is not None:
            connector.report_trace(self._context, connector.run_id, "")
