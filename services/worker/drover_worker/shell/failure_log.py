"""Logs failures of connectors and tasks, with the traceback of their status."""

import structlog

from drover.model.ids import TaskId
from drover.model.status import StatusKey
from drover_worker.core import events
from drover_worker.core.lifecycle.lifecycle import Phase
from drover_worker.core.lifecycle.work import Work
from drover_worker.shell.status_writer import shortened

_log = structlog.get_logger("drover.worker.failures")


class FailureLog:
    """Logs each failure once, at level error; skips failures of earlier runs."""

    def __init__(self, work: Work, worker_id: str) -> None:
        self._work = work
        self._worker_id = worker_id
        #: The last logged run and trace, for the connectors and tasks of this worker.
        self._logged: dict[StatusKey, tuple[int, str]] = {}
        #: The connectors in quarantine that were logged.
        self._quarantined: set[str] = set()

    def observe(self, event: events.HerderEvent) -> None:
        """Handle an event that the herder has processed."""
        match event:
            case events.ConnectorFailed(name, run_id, trace, _):
                self._failed("a connector failed", name, run_id, trace)
            case events.TaskConfigsNotGenerated(name, run_id, trace):
                # repeated on every retry: log it again only with a different trace
                self._failed(
                    "a connector's task configs could not be generated", name, run_id, trace
                )
            case events.TaskFailed(task, run_id, trace, _):
                self._failed("a task failed", task, run_id, trace)
            case events.EngineLost():
                self._engine_ended(event)
            case _:
                pass
        self._quarantined &= self._work.isolation.quarantined.keys()

    def _engine_ended(self, event: events.EngineLost) -> None:
        isolation = self._work.isolation
        suspects = sorted(isolation.suspects)
        if suspects:
            _log.warning(
                "connectors that may have ended the engine run in other engines",
                connectors=suspects,
                engine=str(event.engine),
                reason=event.reason,
            )
        for name in isolation.quarantined.keys() - self._quarantined:
            self._quarantined.add(name)
            found = isolation.quarantined[name]
            _log.error(
                "a connector ended the engine repeatedly and now runs in quarantine",
                connector=name,
                worker=self._worker_id,
                end_count=found.end_count,
                reason=found.reason,
            )
        for name, found in isolation.quarantined.items():
            if found.stopped and event.engine.name.endswith(f"/{name}"):
                _log.error(
                    "a connector was stopped, because it ended its engine in quarantine repeatedly",
                    connector=name,
                    worker=self._worker_id,
                    end_count=found.end_count,
                    reason=found.reason,
                )

    def _failed(self, what: str, key: StatusKey, run_id: int, trace: str) -> None:
        item = self._work.find(key)
        if item is None or item.phase is Phase.STOPPING:
            return  # what a stop interrupts is no failure
        if item.run_id != run_id or self._logged.get(key) == (run_id, trace):
            return
        present = {each: known for each, known in self._logged.items() if self._work.find(each)}
        self._logged = {**present, key: (run_id, trace)}
        where = (
            {"connector": key.connector, "task": key.task}
            if isinstance(key, TaskId)
            else {"connector": key}
        )
        _log.error(what, **where, worker=self._worker_id, exception=shortened(trace))
