"""Generates the task configs of running connectors; the leader writes changed ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drover.errors import DroverError, Reason
from drover.model.config import ConfigMap, TargetState
from drover.model.failures import FailureCause
from drover_worker.core.causes import Cause
from drover_worker.core.config.lease import ConfigLogLease
from drover_worker.core.context import Context
from drover_worker.core.events import ConfigWritten, ReconfigureDue
from drover_worker.core.instructions import (
    GenerateTaskConfigs,
    SubmitToLeader,
    WriteTaskConfigs,
)
from drover_worker.core.lifecycle.connector import ConnectorLifecycle
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.membership import Membership


@dataclass(slots=True)
class _Reconfiguration:
    """One reconfiguration of a connector, from GenerateTaskConfigs to the durable write."""

    run_id: int
    #: The connector is generating task configs, or they are being written.
    busy: bool = False
    #: Another reconfiguration was requested while this one was busy.
    again: bool = False
    attempt: int = 0
    cause_id: str = ""
    request_id: str = ""
    epoch: int | None = None
    #: Generated task configs that wait until they may be written.
    waiting: Sequence[ConfigMap] | None = None


class Reconfigurer:
    """Runs at most one reconfiguration of each connector at a time; retries failures."""

    def __init__(
        self,
        context: Context,
        work: Work,
        membership: Membership,
        lease: ConfigLogLease,
        *,
        is_stopping: Callable[[str], bool],
    ) -> None:
        """``is_stopping`` returns whether the leader is removing a connector's task configs."""
        self._context = context
        self._work = work
        self._membership = membership
        self._lease = lease
        self._is_stopping = is_stopping
        self._under_way: dict[str, _Reconfiguration] = {}
        #: Connectors whose task configs are being written, by the cause id of the write.
        self._names_by_cause: dict[str, str] = {}

    @property
    def writing(self) -> bool:
        """Whether task configs that were generated here are being written or wait to be written."""
        return any(
            known.cause_id or known.waiting is not None for known in self._under_way.values()
        )

    def is_under_way(self, name: str) -> bool:
        """Whether a reconfiguration of the connector is in progress or waits for a retry."""
        return name in self._under_way

    def request(self, name: str) -> None:
        """Generate the connector's task configs; write them if they differ from the applied set."""
        connector = self._connector(name)
        if connector is None:
            return
        known = self._under_way.get(name)
        if known is None or known.run_id != connector.run_id:
            if known is not None:
                self._names_by_cause.pop(known.cause_id, None)
            known = self._under_way[name] = _Reconfiguration(connector.run_id)
        if known.busy or known.waiting is not None:
            known.again = True
            return
        known.busy = True
        self._context.emit(
            GenerateTaskConfigs(name, connector.run_id, self._context.view.tasks_max(name))
        )

    def generated(self, name: str, run_id: int, configs: Sequence[ConfigMap]) -> None:
        """The connector generated its task configs."""
        known = self._find(name, run_id)
        connector = self._connector(name)
        if known is None or connector is None:
            return
        known.busy = False
        connector.generated = configs
        tasks_max = self._context.view.tasks_max(name)
        if len(configs) > tasks_max:
            self.forget(name)
            text = f"the connector generated {len(configs)} task configs; tasks.max is {tasks_max}"
            connector.failed(self._context, run_id, text, FailureCause.LIMIT)
            self._work.touch(name)
        elif self._unchanged(name, configs):
            self._finish(name, known)
        elif self._is_stopping(name):
            # if the stop fails, the connector still needs task configs
            self._retry_later(name, known, self._context.call_backoff_ms(known.attempt))
        else:
            known.waiting = configs
            known.request_id = f"{self._context.member_id}/{self._context.next_id()}"
            self._submit(name, known)

    def committed(self, name: str) -> None:
        """Regenerate a committed set of task configs that differs from the generated one.

        A set of an earlier run of the connector may be written late. Also, a start may be written
        during a stop, whose removal of task configs must not leave the connector without tasks.
        """
        connector = self._connector(name)
        if connector is None or self._context.view.connectors[name].inconsistent:
            return
        generated = connector.generated
        if generated is not None and not self._unchanged(name, generated):
            self.request(name)

    def not_generated(self, name: str, run_id: int, trace: str) -> None:
        """The connector raised an error: show it in its status and retry after a back-off."""
        known = self._find(name, run_id)
        connector = self._connector(name)
        if known is not None and connector is not None:
            connector.report_trace(self._context, run_id, trace)
            self._retry_later(name, known, self._context.backoff_ms(known.attempt))

    def config_written(self, event: ConfigWritten) -> None:
        """The task configs that this leader wrote are durable."""
        self._written(event.cause_id)

    def submitted(self, cause_id: str) -> None:
        """The task configs that were sent to the leader are durable."""
        self._written(cause_id)

    def call_failed(self, cause_id: str, error: DroverError) -> None:
        """The task configs could not be written or sent to the leader."""
        name = self._names_by_cause.get(cause_id)
        if name is None:
            return
        known = self._under_way[name]
        if error.reason is Reason.STALE_WRITER_EPOCH and known.epoch is not None:
            self._lease.lost(known.epoch)
        self._retry_later(name, known, self._context.call_backoff_ms(known.attempt))

    def due(self, name: str, run_id: int) -> None:
        """The back-off is over: generate again."""
        known = self._find(name, run_id)
        if known is not None and not known.busy:
            self.request(name)

    def pump(self) -> None:
        """Write waiting task configs if this worker may write now."""
        for name, known in list(self._under_way.items()):
            if known.waiting is not None:
                self._submit(name, known)

    def forget(self, name: str) -> None:
        """Drop a connector's reconfiguration."""
        known = self._under_way.pop(name, None)
        if known is not None:
            self._names_by_cause.pop(known.cause_id, None)
            self._context.cancel_timer(f"reconfigure:{name}")

    def forget_stale(self, connector: ConnectorLifecycle) -> None:
        """Drop the reconfiguration of a run that has ended."""
        known = self._under_way.get(connector.name)
        if known is not None and (known.run_id != connector.run_id or not connector.running):
            self.forget(connector.name)

    def _written(self, cause_id: str) -> None:
        name = self._names_by_cause.get(cause_id)
        if name is not None:
            self._finish(name, self._under_way[name])

    def _submit(self, name: str, known: _Reconfiguration) -> None:
        configs = known.waiting
        if configs is None or not self._membership.settled:
            return
        if self._membership.leads and not self._lease.ready:
            return
        known.waiting = None
        known.busy = True
        known.cause_id = self._context.next_cause(Cause.TASK_CONFIGS)
        self._names_by_cause[known.cause_id] = name
        if self._membership.leads and self._lease.epoch is not None:
            known.epoch = self._lease.epoch
            self._context.emit(
                WriteTaskConfigs(known.cause_id, name, configs, known.epoch, known.request_id)
            )
        else:
            known.epoch = None
            leader_url = self._membership.call_url(self._membership.leader_url)
            self._context.emit(
                SubmitToLeader(known.cause_id, leader_url, name, configs, known.request_id)
            )

    def _unchanged(self, name: str, configs: Sequence[ConfigMap]) -> bool:
        view = self._context.view
        entry = view.connectors[name]
        applied = view.tasks(name)
        return (
            not entry.inconsistent
            and entry.task_count == len(configs)
            and entry.applied_config == entry.config
            and all(applied.get(index) == config for index, config in enumerate(configs))
        )

    def _retry_later(self, name: str, known: _Reconfiguration, delay_ms: int) -> None:
        known.busy = False
        known.again = False
        self._names_by_cause.pop(known.cause_id, None)
        known.cause_id = ""
        known.waiting = None
        known.attempt += 1
        self._context.set_timer(f"reconfigure:{name}", delay_ms, ReconfigureDue(name, known.run_id))

    def _finish(self, name: str, known: _Reconfiguration) -> None:
        connector = self._connector(name)
        self.forget(name)
        if connector is not None:
            connector.report_trace(self._context, known.run_id, "")
        if known.again:
            self.request(name)

    def _find(self, name: str, run_id: int) -> _Reconfiguration | None:
        known = self._under_way.get(name)
        return known if known is not None and known.run_id == run_id else None

    def _connector(self, name: str) -> ConnectorLifecycle | None:
        """The connector, if it runs here and its target state is STARTED."""
        connector = self._work.connectors.get(name)
        entry = self._context.view.connectors.get(name)
        if connector is None or entry is None or not connector.running:
            return None
        return connector if entry.target_state is TargetState.STARTED else None
