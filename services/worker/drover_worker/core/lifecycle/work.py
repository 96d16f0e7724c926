"""The connectors and tasks that this worker runs."""

from collections.abc import Callable, Collection, Iterable, Mapping

from drover.model.engines import OWN
from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from drover_worker.core.context import Context
from drover_worker.core.engine_resources import too_many_text
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.core.instructions import StartEngine, StopEngine
from drover_worker.core.lifecycle.connector import ConnectorLifecycle
from drover_worker.core.lifecycle.engine_deaths import EngineFault
from drover_worker.core.lifecycle.isolation import Isolation
from drover_worker.core.lifecycle.lifecycle import IN_ENGINE, STARTING, Lifecycle, Phase
from drover_worker.core.lifecycle.restart_plan import RestartPlan, RestartRequest, plan_restart
from drover_worker.core.lifecycle.task import TaskLifecycle


class Work:
    """The lifecycle of each assigned connector and task; advances the changed ones."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.isolation = Isolation(context, self.touch_connector)
        self.connectors: dict[str, ConnectorLifecycle] = {}
        self.tasks: dict[TaskId, TaskLifecycle] = {}
        self._tasks_by_connector: dict[str, dict[TaskId, TaskLifecycle]] = {}
        #: Keys to advance, in the order in which they changed.
        self._touched: dict[StatusKey, None] = {}
        #: What needs an engine besides the shared one, and these engines.
        self._needed: dict[StatusKey, EngineSlot] = {}
        self._engines: set[EngineSlot] = set()

    @property
    def idle(self) -> bool:
        """Whether this worker has no connectors and tasks."""
        return not self.connectors and not self.tasks

    @property
    def starting(self) -> bool:
        """Whether a connector or task is being started."""
        return any(item.phase in STARTING for item in self.all())

    def find(self, key: StatusKey) -> Lifecycle | None:
        """The lifecycle of a connector (by name) or task; None if it is not on this worker."""
        return self.tasks.get(key) if isinstance(key, TaskId) else self.connectors.get(key)

    def tasks_of(self, name: str) -> Mapping[TaskId, TaskLifecycle]:
        """This worker's tasks of a connector, in the order of their assignment."""
        return self._tasks_by_connector.get(name, {})

    def of_connector(self, name: str) -> list[Lifecycle]:
        """A connector and its tasks, as far as they are on this worker."""
        connector = self.connectors.get(name)
        return [*([connector] if connector is not None else []), *self.tasks_of(name).values()]

    def all(self) -> list[Lifecycle]:
        """Every lifecycle: connectors, then tasks."""
        return [*self.connectors.values(), *self.tasks.values()]

    @property
    def held(self) -> tuple[StatusKey, ...]:
        """The keys of all connectors and tasks, including the ones that are being stopped."""
        return (*self.connectors, *self.tasks)

    def start(
        self,
        connectors: Iterable[str],
        tasks: Iterable[TaskId],
        *,
        config_offset: int | None = None,
    ) -> None:
        """Start assigned connectors and tasks that exist and do not run here yet.

        Tasks with configs later in the config log than ``config_offset`` are left for the next
        assignment.
        """
        view = self._context.view
        for name in connectors:
            if name in view.connectors and not self._keep(name):
                connector = self.connectors[name] = ConnectorLifecycle(name)
                connector.adopt_status(self._context)
                self.touch(name)
        for task in tasks:
            is_later = (
                config_offset is not None and view.tasks_offset(task.connector) > config_offset
            )
            if view.has_task(task) and not is_later and not self._keep(task):
                item = self.tasks[task] = TaskLifecycle(task)
                item.adopt_status(self._context)
                self._tasks_by_connector.setdefault(task.connector, {})[task] = item
                self.touch(task)

    def _keep(self, key: StatusKey) -> bool:
        """Keep an item that is here already; a revoked one restarts after its stop. False if not
        here.
        """
        item = self.find(key)
        if item is None:
            return False
        if item.revoked:
            item.reassign()
            self.touch(key)
        return True

    def revoke_connector(self, name: str) -> None:
        """Stop a removed connector and its tasks."""
        connector = self.connectors.get(name)
        if connector is not None:
            connector.revoke()
            self.touch(name)
        self.revoke_tasks(name)

    def revoke_tasks(self, name: str) -> None:
        """Stop a connector's tasks."""
        for task, item in self.tasks_of(name).items():
            item.revoke()
            self.touch(task)

    def renew_tasks(self, name: str) -> None:
        """Restart a connector's tasks with new configs; stop tasks that no longer exist."""
        for task, item in self.tasks_of(name).items():
            if self._context.view.has_task(task):
                item.renew()
            else:
                item.revoke()
            self.touch(task)

    def revoke_others(self, keys: Iterable[StatusKey]) -> None:
        """Stop everything but ``keys``."""
        retained = set(keys)
        for item in self.all():
            if item.key not in retained and not item.revoked:
                item.revoke()
                self.touch(item.key)

    def revoke_all(self) -> None:
        """Stop everything; ``idle`` is true once all has stopped."""
        for item in self.all():
            item.revoke()
            self.touch(item.key)

    def has_engine(self, engine: EngineSlot) -> bool:
        """Whether the engine is needed on this worker."""
        return engine == SHARED or engine in self._engines

    def other_engines(self, connector: str) -> list[EngineSlot]:
        """The engines besides the shared one and the connector's own."""
        own = f"{OWN}/{connector}"
        return sorted((each for each in self._engines if each.name != own), key=str)

    def held_in(self, engine: EngineSlot) -> list[StatusKey]:
        """What is in an engine."""
        return [
            each.key for each in self.all() if each.phase in IN_ENGINE and each.engine == engine
        ]

    def lose_engine(
        self, engine: EngineSlot, reason: str, *, faults: Mapping[StatusKey, EngineFault]
    ) -> None:
        """Fail everything in the engine that ended; ``faults`` has the traces of its causes."""
        for item in self.all():
            if item.phase is not Phase.IDLE and item.engine == engine:
                item.lose_engine(self._context, reason, fault=faults.get(item.key))
                self.touch(item.key)
            elif engine != SHARED and item.needed_engine(self._context) == engine:
                item.engine_not_started(self._context, reason)
                self.touch(item.key)
        for key, fault in faults.items():
            if fault.cause is FailureCause.LIMIT:
                self._give_up(key.connector if isinstance(key, TaskId) else key, fault)

    def _give_up(self, name: str, fault: EngineFault) -> None:
        """Stop what still waits for a restart of a connector that was stopped."""
        for item in self.of_connector(name):
            item.give_up(self._context, fault.trace)

    def regain_engine(self, engine: EngineSlot) -> None:
        """Start everything that failed with the old engine or waited for the new one."""
        for item in self.all():
            if self._context.engines.slot_of(item.connector) == engine:
                item.regain_engine()
                self.touch(item.key)

    def touch(self, key: StatusKey) -> None:
        """Mark a connector or task for ``advance``."""
        self._touched[key] = None

    def touch_connector(self, name: str) -> None:
        """Mark a connector and this worker's tasks of it for ``advance``."""
        self.touch(name)
        for task in self.tasks_of(name):
            self.touch(task)

    def advance(self, on_change: Callable[[Lifecycle], None]) -> None:
        """Advance every marked lifecycle and call ``on_change`` with it."""
        self._advance_touched(on_change)
        if self._refuse_engines():
            self._advance_touched(on_change)

    def _advance_touched(self, on_change: Callable[[Lifecycle], None]) -> None:
        touched, self._touched = self._touched, {}
        for key in touched:
            item = self.find(key)
            if item is None:
                continue
            item.advance(self._context)
            if item.removable:
                self._remove(key)
            self._note_engine(item)
            on_change(item)
        self._change_engines()

    def plan_restart(self, request: RestartRequest) -> RestartPlan:
        """Plan which connector and tasks of this worker a restart request restarts."""
        connector = self.connectors.get(request.name)
        plan = plan_restart(
            request,
            connector_state=connector.state if connector else RunState.UNASSIGNED,
            task_states={task: item.state for task, item in self.tasks_of(request.name).items()},
        )
        return RestartPlan(
            request.name, plan.restart_connector and connector is not None, plan.tasks
        )

    def restart(self, plan: RestartPlan) -> None:
        """Restart the connector and tasks of a plan, in this order."""
        keys: list[StatusKey] = [plan.name] if plan.restart_connector else []
        for key in [*keys, *plan.tasks]:
            item = self.find(key)
            if item is not None:
                self.restart_item(item)

    def restart_item(self, item: Lifecycle) -> int:
        """Restart a connector or task on behalf of a user; see ``Lifecycle.restart``."""
        self.isolation.release(item.connector)
        self.touch(item.key)
        return item.restart()

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        indexed = {task for tasks in self._tasks_by_connector.values() for task in tasks}
        assert indexed == set(self.tasks), "the index of tasks by connector is wrong"
        for item in self.all():
            assert not item.removable, f"{item.key} has stopped but was not removed"
            if item.phase in IN_ENGINE:
                assert item.run_id > 0, f"{item.key} is in the engine without a run"
                up = self._context.engines.up
                assert item.engine in up, f"{item.key} is in the engine {item.engine}, not in {up}"

    def _note_engine(self, item: Lifecycle) -> None:
        """Record which engine a changed item needs."""
        here = self.find(item.key) is item
        engine = item.needed_engine(self._context) if here else None
        if engine is None or engine == SHARED:
            self._needed.pop(item.key, None)
        else:
            self._needed[item.key] = engine

    def _change_engines(self) -> None:
        """Start engines that are needed now, and stop the ones that nothing needs."""
        needed = set(self._needed.values()) if self._needed else set()
        needed -= self._refused(needed)
        for engine in sorted(self._engines - needed, key=str):
            self._context.engines.up.discard(engine)
            self._context.emit(StopEngine(engine))
        for engine in sorted(needed - self._engines, key=str):
            self._context.emit(StartEngine(engine))
        self._engines = needed

    def _refused(self, needed: Collection[EngineSlot]) -> set[EngineSlot]:
        """The own engines for which there is no room; running ones stay."""
        own = [each for each in needed if each.is_own]
        own.sort(key=lambda each: (each not in self._engines, each.name))
        return set(own[self._context.settings.own_engines_max :])

    def _refuse_engines(self) -> bool:
        """Fail what waits for an engine without room; it starts when there is room."""
        refused = self._refused(set(self._needed.values())) if self._needed else set()
        found = False
        for key, engine in self._needed.items() if refused else ():
            item = self.find(key)
            if engine in refused and item is not None and item.failure is None:
                own = sorted((each for each in self._engines if each.is_own), key=str)
                text = too_many_text(own, self._context.settings.own_engines_max)
                item.engine_not_started(self._context, f"its own engine is not started: {text}")
                self.touch(key)
                found = True
        return found

    def _remove(self, key: StatusKey) -> None:
        if isinstance(key, TaskId):
            del self.tasks[key]
            siblings = self._tasks_by_connector[key.connector]
            del siblings[key]
            if not siblings:
                del self._tasks_by_connector[key.connector]
        else:
            del self.connectors[key]
