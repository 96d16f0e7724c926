"""The lifecycle of a connector object on the worker that owns it."""

from collections.abc import Sequence

from drover.model.config import ConfigMap, TargetState
from drover.model.status import RunState
from drover_worker.core.context import Context
from drover_worker.core.instructions import StartConnector, StopConnector
from drover_worker.core.lifecycle.lifecycle import Lifecycle, Phase


class ConnectorLifecycle(Lifecycle):
    """A connector object; it is in the engine only while its target state is STARTED."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        #: The config of the current run.
        self.config: ConfigMap = {}
        #: The task configs that the current run generated last; None before.
        self.generated: Sequence[ConfigMap] | None = None

    def report_trace(self, context: Context, run_id: int, trace: str) -> None:
        """Report why a running connector has no new task configs; an empty trace clears it."""
        if self.running and run_id == self.run_id:
            self._report_running(context, trace)

    def _config_offset(self, context: Context) -> int:
        entry = context.view.connectors.get(self.name)
        return entry.config_revision if entry else -1

    def _target(self, context: Context) -> TargetState:
        entry = context.view.connectors.get(self.name)
        return entry.target_state if entry else TargetState.STOPPED

    def _may_run(self, context: Context) -> bool:
        target = self._target(context)
        # a failed connector stays FAILED when it is paused; only a stop clears the failure
        keeps_failure = target is TargetState.PAUSED and self.settled_failure
        return target is TargetState.STARTED or keeps_failure

    def _running_state(self, context: Context) -> RunState:
        return RunState.RUNNING

    def _resting_state(self, context: Context) -> RunState:
        paused = self._target(context) is TargetState.PAUSED
        return RunState.PAUSED if paused else RunState.STOPPED

    def _begin(self, context: Context) -> None:
        self.phase = Phase.STARTING
        self.generated = None
        self.config = context.view.config(self.name) or {}
        context.emit(StartConnector(self.name, self.run_id, self.config, self.engine))

    def _adjust(self, context: Context) -> None:
        return

    def _emit_stop(self, context: Context) -> None:
        context.emit(StopConnector(self.name, self.run_id))
