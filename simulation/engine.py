"""The simulated engine: a separate process that runs connectors and tasks of plugins.

Its tasks are in ``tasks.py``. The herder abandons a task that exceeds the stop timeout; the task
keeps running until its stale claim fences it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from drover.errors import DeadlineExceededError, Reason, UnavailableError
from drover.model.config import ConfigMap
from drover.model.ids import TaskId
from drover.model.offsets import TaskOffsets
from drover_worker.core import events, instructions
from simulation.data_store import DataStore
from simulation.network import Heard, Network
from simulation.process import Process
from simulation.rules import Rules
from simulation.waits import told

if TYPE_CHECKING:
    from simulation.tasks import SimulatedTask
    from simulation.worker import Worker

START_LIMIT_MS = 1_500
STOP_LIMIT_MS = 600
MARGIN_MS = 300
ENGINE_GONE = UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine ended")
NO_ENGINE = UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine is not running")
TOO_SLOW = DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "the engine did not answer")

Command = (
    instructions.StartConnector
    | instructions.StopConnector
    | instructions.GenerateTaskConfigs
    | instructions.ValidateConfig
    | instructions.StartTask
    | instructions.SetTaskPaused
    | instructions.StopTask
)
_STOPS = instructions.StopConnector | instructions.StopTask


class Engine(Process):
    """One worker's engine; its worker restarts it whenever it ends."""

    def __init__(
        self, network: Network, name: str, worker: "Worker", data: DataStore, rules: Rules
    ) -> None:
        super().__init__(network.world, name)
        self.network = network
        self.data = data
        self.rules = rules
        self._worker = worker
        self.ready = False
        self.connectors: dict[str, instructions.StartConnector] = {}
        self.tasks: dict[TaskId, SimulatedTask] = {}
        self._answers: dict[int, Callable[[object], None]] = {}
        #: Its own calls to the worker.
        self._calls: dict[int, Heard] = {}
        self._inbox: deque[tuple[Command, Heard]] = deque()
        #: Commands of a connector or a task are carried out one at a time, in order.
        self._turns: dict[object, asyncio.Lock] = {}
        self.spark_is_running = False

    # --- the process -------------------------------------------------------------------------

    def started(self) -> None:
        """Start Spark."""
        self.ready = False
        self.connectors, self.tasks, self._answers, self._calls = {}, {}, {}, {}
        self._turns = {}
        self.spark_is_running = False
        self._inbox.clear()
        self.after(self.world.between(100, 1_500), self._be_ready)

    def crashed(self) -> None:
        """All connectors and tasks are lost; the worker is notified and restarts the engine."""
        self.ready = False
        answers, self._answers = self._answers, {}
        worker = self._worker
        if worker.alive:
            for heard in answers.values():
                worker.deliver(1, partial(heard, ENGINE_GONE))
            worker.deliver(1, worker.engine_lost)
            worker.deliver(self.world.between(50, 1_000), self._start_again)

    def _start_again(self) -> None:
        if not self.alive:
            self.start()

    def lose_spark(self) -> None:
        """Spark ends; the engine notices soon, and ends too."""
        self.spark_is_running = False
        self.after(self.world.between(1, 500), partial(self.crash, "ends without Spark"))

    def _be_ready(self) -> None:
        self.ready = self.spark_is_running = True
        self.report(events.EngineReady())

    def report(self, event: events.HerderEvent) -> None:
        """Send an event to the herder; order is preserved."""
        self._worker.deliver(1, partial(self._worker.post, event))

    def commit(self, commit: TaskOffsets, heard: Heard) -> None:
        """Commit a task's offsets through the worker."""
        worker, call_id = self._worker, self._call(heard)
        worker.deliver(1, lambda: worker.committer.commit(call_id, commit))

    def fetch(self, connector: str, heard: Heard) -> None:
        """Read a connector's committed offsets."""
        worker, call_id = self._worker, self._call(heard)
        worker.deliver(1, lambda: worker.fetcher.fetch(call_id, connector))

    def _call(self, heard: Heard) -> int:
        call_id = self.world.next_id()
        self._calls[call_id] = heard
        return call_id

    def answered(self, call_id: int, result: object) -> None:
        """The worker answers a call."""
        heard = self._calls.pop(call_id, None)
        if heard is not None:
            heard(result)

    # --- commands ----------------------------------------------------------------------------

    def command(self, command: Command, heard: Heard) -> None:
        """Execute a command of the herder; ``heard`` gets an event or an error."""
        worker = self._worker
        if not self.alive:
            worker.deliver(0, partial(heard, NO_ENGINE))
            return
        number = self.world.next_id()
        incarnation = self.incarnation

        def answered(result: object) -> None:
            if self.incarnation == incarnation and self._answers.pop(number, None) is not None:
                heard(result)

        self._answers[number] = heard
        limit_ms = 2 * STOP_LIMIT_MS if isinstance(command, _STOPS) else START_LIMIT_MS
        worker.after(limit_ms + MARGIN_MS, lambda: answered(TOO_SLOW))
        self._inbox.append((command, answered))
        self.deliver(1, self._take)

    def _take(self) -> None:
        command, answered = self._inbox.popleft()
        self.spawn(self._do(command, answered, self.now_ms + START_LIMIT_MS))

    async def _do(self, command: Command, answered: Heard, until_ms: int) -> None:
        key = getattr(command, "task", None) or getattr(command, "name", "")
        hangs_ms = 0
        if isinstance(command, _STOPS) and self.world.chance(self.network.mix.stop_hangs):
            hangs_ms = self.world.between(2 * STOP_LIMIT_MS, 8 * STOP_LIMIT_MS)
            self.world.tell((self.name,), "{} hangs in {}", self.name, command)
        async with self._turns.setdefault(key, asyncio.Lock()):
            await asyncio.sleep(self.world.between(1, self.network.mix.plugin_ms) / 1000)
            result = await self._carry_out(command, hangs_ms, until_ms)
        self._worker.deliver(hangs_ms + 1, partial(answered, result))

    async def _carry_out(self, command: Command, hangs_ms: int, until_ms: int) -> object:
        match command:
            case instructions.StartConnector(name, run_id):
                if self._fails():
                    return events.ConnectorFailed(name, run_id, "the plugin failed")
                self.connectors[name] = command
                return events.ConnectorStarted(name, run_id)
            case instructions.StopConnector(name, run_id):
                if name in self.connectors and self.connectors[name].run_id == run_id:
                    del self.connectors[name]
                return events.ConnectorStopped(name, run_id)
            case instructions.GenerateTaskConfigs(name, run_id, tasks_max):
                if self._fails():
                    return events.TaskConfigsNotGenerated(name, run_id, "the plugin failed")
                running_config = self.connectors[name].config if name in self.connectors else {}
                configs = task_configs(running_config, tasks_max)
                return events.TaskConfigsGenerated(name, run_id, configs)
            case instructions.ValidateConfig(cause_id, config):
                kind = config["connector.class"].lower()
                return events.ConfigValidated(cause_id, (), kind)
            case instructions.StartTask():
                return await self._start_task(command, until_ms)
            case instructions.SetTaskPaused(task, run_id, paused):
                running = self.tasks.get(task)
                if running is not None and running.run_id == run_id:
                    running.set_paused(paused)
                return events.TaskPauseSet(task, run_id, paused)
            case instructions.StopTask(task, run_id):
                running = self.tasks.get(task)
                if running is not None and running.run_id == run_id:
                    del self.tasks[task]
                    if hangs_ms:  # the task works on until the stop begins
                        self.after(hangs_ms, lambda: self.spawn(running.stop()))
                    else:
                        await running.stop()
                return events.TaskStopped(task, run_id)

    async def _start_task(self, start: instructions.StartTask, until_ms: int) -> object:
        running = self._new_task(start)
        try:
            async with asyncio.timeout((until_ms - self.now_ms) / 1000):
                await running.prepare()
        except Exception as error:  # noqa: BLE001 - reported
            running.disown()
            return events.TaskFailed(start.task, start.run_id, str(error))
        self.tasks[start.task] = running
        running.begin()
        return events.TaskStarted(start.task, start.run_id)

    def _new_task(self, start: instructions.StartTask) -> "SimulatedTask":
        from simulation.sink_task import SinkTask
        from simulation.source_task import SourceTask

        kind = start.connector_config["connector.class"]
        return (SourceTask if kind == "Source" else SinkTask)(self, start)

    def _fails(self) -> bool:
        return self.world.chance(self.network.mix.plugin_failure)


def task_configs(config: ConfigMap, tasks_max: int) -> list[dict[str, str]]:
    """The task configs of a connector: its tasks share its partitions."""
    partitions = config.get("partitions", "1")
    count = min(int(partitions), tasks_max)
    version = config.get("version", "")
    own = {"partitions": partitions, "task.count": str(count), "version": version}
    return [dict(own) for _ in range(count)]


class EngineLink:
    """A worker's access to its engine, with the methods of ``drover_worker.shell.engine_link``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.validate_config = self.start_connector = self.stop_connector = self._command
        self.generate_task_configs = self.start_task = self._command
        self.set_task_paused = self.stop_task = self._command

    async def _command(self, command: Command) -> events.HerderEvent:
        return cast(
            "events.HerderEvent", await told(lambda heard: self._engine.command(command, heard))
        )
