"""Has connectors make their task configs anew whose set is not whole in the config log.

A commit marker may name tasks that the log does not have: compaction took a record of the set after
another one had been begun and never finished, or two clusters wrote at a time. Nothing of such a
connector runs, and nothing that is in the log will ever change that.
"""

from dataclasses import dataclass

from drover_worker.core.config.reconfigurer import Reconfigurer
from drover_worker.core.context import Context
from drover_worker.core.events import HealDue
from drover_worker.core.lifecycle.connector import ConnectorLifecycle
from drover_worker.core.lifecycle.work import Work

_STILL_NOT_WHOLE = (
    "the commit marker of its task configs names tasks that the config log does not have: they were"
    " made anew {count} times and are still not whole. The config store's log tells of records that"
    " it could not read; another cluster may be writing to the same log"
)


@dataclass(slots=True)
class _Attempt:
    """How often a connector's set was made anew, and where this time has come to."""

    count: int = 0
    #: It was asked; what comes of it is not done.
    asked: bool = False
    #: It was asked before, and is not asked again yet.
    waiting: bool = False


class Healing:
    """Asks running connectors of this worker whose task configs are inconsistent.

    Once at once, and then again after a back-off that doubles up to a limit: what makes one set
    unreadable may do so to the next. Counts on over rebalances, until the set is whole.
    """

    def __init__(self, context: Context, work: Work, reconfigurer: Reconfigurer) -> None:
        self._context = context
        self._work = work
        self._reconfigurer = reconfigurer
        self._attempts: dict[str, _Attempt] = {}

    def pump(self) -> None:
        """Ask those that may be asked."""
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
            attempt.asked = True
        elif attempt.asked:
            # all is written, as far as its writer knows; this worker may only have to read it
            self._wait(connector, attempt)
        elif not attempt.waiting:
            self._reconfigurer.request(name)
            attempt.asked = self._reconfigurer.is_under_way(name)

    def _wait(self, connector: ConnectorLifecycle, attempt: _Attempt) -> None:
        delay_ms = self._context.backoff_ms(attempt.count)
        attempt.count += 1
        attempt.asked = False
        attempt.waiting = True
        self._context.set_timer(f"heal:{connector.name}", delay_ms, HealDue(connector.name))
        if attempt.count > 1:
            trace = _STILL_NOT_WHOLE.format(count=attempt.count)
            connector.note_trouble(self._context, connector.run_id, trace)

    def _forget(self, name: str) -> None:
        attempt = self._attempts.pop(name)
        self._context.cancel_timer(f"heal:{name}")
        connector = self._work.connectors.get(name)
        if attempt.count > 1 and connector is not None:
            connector.note_trouble(self._context, connector.run_id, "")
