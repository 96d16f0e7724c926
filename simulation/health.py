"""The conditions of a healed cluster, and which of them do not hold yet."""

from collections import Counter
from collections.abc import Iterable

from drover.model.config import TargetState
from drover.model.group import GroupState
from drover.model.ids import TaskId
from drover.model.status import RunState, StatusKey
from simulation.cluster import Cluster
from simulation.engine import task_configs
from simulation.worker import GROUP, Worker

_TASK_STATES = {TargetState.STARTED: RunState.RUNNING, TargetState.PAUSED: RunState.PAUSED}
_CONNECTOR_STATES = {**_TASK_STATES, TargetState.STOPPED: RunState.STOPPED}


def missing(cluster: Cluster) -> str:
    """The first condition that does not hold; empty when the cluster is healthy."""
    for fault in _faults(cluster):
        return fault
    return ""


def failed_connectors(cluster: Cluster) -> list[str]:
    """Connectors that are FAILED or have a FAILED task; only an operator restarts these."""
    if not (cluster.status_store.alive and cluster.status_store.runtime.loaded):
        return []
    statuses = cluster.status_store.runtime.machine.snapshot().statuses
    return sorted(
        {_connector_of(key) for key, each in statuses.items() if each.state is RunState.FAILED}
        & set(cluster.rules.configs.existing())
    )


def _connector_of(key: StatusKey) -> str:
    return key.connector if isinstance(key, TaskId) else key


def _faults(cluster: Cluster) -> Iterable[str]:
    for operator in cluster.operators:
        if operator.busy:
            yield f"{operator.name} waits for an answer"
    workers = cluster.live_workers
    for worker in workers:
        if not worker.settled:
            yield f"{worker.name} is {worker.herder.membership.stage}"
        if worker.herder.context.view.offset != cluster.rules.configs.end_offset:
            yield f"{worker.name} has not read the config log to its end"
    if not all(runtime.loaded for each in cluster.services for runtime in each.runtimes):
        yield "a service loads its log"
        return
    yield from _group_faults(cluster, workers)
    yield from _consumer_faults(cluster)
    yield from _work_faults(cluster, workers)


def _consumer_faults(cluster: Cluster) -> Iterable[str]:
    for group_id in sorted({each.group_id for each in cluster.consumers}):
        consumers = [c for c in cluster.consumers if c.group_id == group_id and c.alive]
        group = cluster.describe(group_id)
        if group is None:
            yield f"no coordinator serves {group_id}"
            continue
        expected = sorted(consumer.member_id for consumer in consumers)
        found = sorted(member.member_id for member in group.members)
        if found != expected:
            yield f"the members of {group_id} are {found}, not {expected}"
        elif consumers and group.state is not GroupState.STABLE:
            yield f"{group_id} is {group.state}"
        partitions = {consumer.partition for consumer in consumers}
        if None in partitions or len(partitions) != len(consumers):
            yield f"the members of {group_id} work on {partitions}"


def _group_faults(cluster: Cluster, workers: list[Worker]) -> Iterable[str]:
    group = cluster.describe(GROUP)
    if group is None:
        yield "no coordinator serves the group"
        return
    if group.state is not GroupState.STABLE:
        yield f"the group is {group.state}"
    members = sorted(member.client_id for member in group.members)
    if members != sorted(worker.name for worker in workers):
        yield f"the group's members are {members}"
    for worker in workers:
        generation = worker.herder.context.generation
        if generation != group.generation:
            yield f"{worker.name} is in generation {generation}, not {group.generation}"


def _work_faults(cluster: Cluster, workers: list[Worker]) -> Iterable[str]:
    statuses = dict(cluster.status_store.runtime.machine.snapshot().statuses)
    takers = [worker for worker in workers if not worker.draining]
    if not takers:
        yield "all workers are drained"
        return
    connector_loads, task_loads = (Counter({w.name: 0 for w in takers}) for _ in range(2))
    expected: dict[StatusKey, tuple[RunState, bool]] = {}
    for name, known in cluster.rules.configs.existing().items():
        target = known.target or TargetState.STARTED
        assert known.config is not None
        tasks = known.tasks or []
        if target is TargetState.STARTED:
            if known.missing_tasks_of is not None:
                yield f"{name} is left with half a set of task configs"
            wanted = task_configs(known.config, int(known.config["tasks.max"]))
            if [dict(task) for task in tasks] != wanted:
                yield f"{name} has other task configs than it should have"
        elif target is TargetState.STOPPED and tasks:
            yield f"{name} is stopped and has tasks"
        expected[name] = _CONNECTOR_STATES[target], target is TargetState.STARTED
        for index in range(len(tasks)):
            expected[TaskId(name, index)] = _TASK_STATES[target], True
    for key, (state, should_run) in expected.items():
        owners = [worker for worker in workers if worker.herder.work.find(key) is not None]
        if len(owners) != 1:
            yield f"{key} is worked on by {[worker.name for worker in owners]}"
            continue
        (owner,) = owners
        if owner.draining:
            yield f"{owner.name} is drained and has {key}"
            continue
        (task_loads if isinstance(key, TaskId) else connector_loads)[owner.name] += 1
        if not _is_in_engine(cluster, owner, key, state) and should_run:
            yield f"{key} does not run in the engine of {owner.name}"
        if state is RunState.RUNNING and _is_stuck(cluster, key):
            yield f"{key} has committed nothing since the faults ended"
        status = statuses.pop(key, None)
        if status is None or status.state is not state or status.worker_id != owner.name:
            yield f"{key} should be {state} on {owner.name}, its status is {status}"
    for key, status in statuses.items():
        # a former task of a connector keeps its status for the totals of its counts
        if isinstance(key, str) or key.connector not in expected:
            yield f"{key} is gone and has the status {status}"
    for worker in workers:
        in_engine: list[StatusKey] = [*worker.engine.connectors, *worker.engine.tasks]
        for each in in_engine:
            if each not in expected or worker.herder.work.find(each) is None:
                yield f"{each} runs on {worker.name} for nobody"
    for kind in (connector_loads, task_loads):
        if max(kind.values()) - min(kind.values()) > 1:
            yield f"the work is spread unevenly: {dict(kind)}"


def _is_stuck(cluster: Cluster, key: StatusKey) -> bool:
    if isinstance(key, str):
        return False
    return cluster.rules.advanced_ms.get(key, 0) <= cluster.healed_ms


def _is_in_engine(cluster: Cluster, owner: Worker, key: StatusKey, state: RunState) -> bool:
    if isinstance(key, str):
        return key in owner.engine.connectors
    task = owner.engine.tasks.get(key)
    if task is None or task.ended or task.paused != (state is RunState.PAUSED):
        return False
    # A late grant to an earlier start fences a paused task. The task detects this and claims again
    # when it resumes.
    return task.paused or task.claim == cluster.data.current(key)
