"""Simulated operators: they create, change, delete, pause, resume, stop and restart connectors.

An operator sends each request to any worker; with an unknown result it retries under the same
request id.
"""

from collections.abc import Sequence
from functools import partial

from drover.errors import DeadlineExceededError, DroverError, UnavailableError
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover_worker.core import requests
from simulation.network import Call, Network
from simulation.process import Process
from simulation.rules import Rules
from simulation.worker import Admin

CALL_TIMEOUT_MS = 5_000
ATTEMPTS_MAX = 6
PAUSE_MS = (50, 600)
TASKS_MAX = 4
PARTITIONS = 5

_OPERATIONS = (
    *("create",) * 5,
    *("put",) * 4,
    "delete",
    *("pause", "resume", "resume", "stop", "start", "start"),
    *("restart", "restart all", "restart task"),
)


class Operator(Process):
    """One client of the admin API.

    Args:
        network: Carries its calls.
        name: Its name.
        rules: Sees every acknowledged write.
        workers: The names of the current workers.
    """

    def __init__(self, network: Network, name: str, rules: Rules, workers: Sequence[str]) -> None:
        super().__init__(network.world, name)
        self._network = network
        self._rules = rules
        self._workers = workers
        #: False: finish open requests and start no new ones.
        self.willing = True
        self.busy = False
        self.acknowledged_count = 0

    def started(self) -> None:
        """Schedule the first request."""
        self._think()

    def restart_failed(self, name: str) -> None:
        """Restart a connector's FAILED instances."""
        if not self.busy:
            self._ask(
                requests.RestartConnector(
                    name, include_tasks=True, only_failed=True, request_id=self._new_request_id()
                )
            )

    def _think(self) -> None:
        think_ms = self._network.mix.think_ms
        self.after(self.world.between(think_ms // 4, 2 * think_ms), self._act)

    def _act(self) -> None:
        if self.willing and not self.busy:
            self._ask(self._choose())
        else:
            self._think()

    def _choose(self) -> requests.Request:
        dice, mix = self.world.random, self._network.mix
        number = dice.randrange(mix.connector_count)
        name = f"c{number}"
        request_id = self._new_request_id()
        config = {
            "name": name,
            "connector.class": "Source" if number % 2 else "Sink",
            "tasks.max": str(dice.randint(1, TASKS_MAX)),
            "partitions": str(PARTITIONS),
            "exactly.once": "false" if number == 3 else "true",
            "version": str(dice.randrange(3)),
        }
        match dice.choice(_OPERATIONS):
            case "create":
                state = dice.choice((TargetState.STARTED, TargetState.STARTED, TargetState.PAUSED))
                return requests.CreateConnector(name, config, state, request_id)
            case "put":
                return requests.PutConnectorConfig(name, config, None, request_id)
            case "delete":
                return requests.DeleteConnector(name, request_id)
            case "pause":
                return requests.SetTargetState(name, TargetState.PAUSED, request_id)
            case "resume" | "start":
                return requests.SetTargetState(name, TargetState.STARTED, request_id)
            case "stop":
                return requests.SetTargetState(name, TargetState.STOPPED, request_id)
            case "restart":
                return requests.RestartConnector(
                    name, include_tasks=False, only_failed=False, request_id=request_id
                )
            case "restart all":
                return requests.RestartConnector(
                    name, include_tasks=True, only_failed=False, request_id=request_id
                )
            case _:
                return requests.RestartTask(TaskId(name, dice.randrange(TASKS_MAX)))

    def _new_request_id(self) -> str:
        return f"{self.name}/{self.world.next_id()}"

    def _ask(self, request: requests.Request, attempt: int = 1) -> None:
        self.busy = True
        worker = self.world.random.choice(self._workers)
        what = type(request).__name__
        item = _item(request)
        self.world.tell((item, self.name), "{} asks {}: {}", self.name, worker, request)
        Call(
            self._network,
            self,
            worker,
            Admin(request),
            partial(self._answered, request, what, attempt),
            timeout_ms=CALL_TIMEOUT_MS,
            retry=False,
        )

    def _answered(self, request: requests.Request, what: str, attempt: int, answer: object) -> None:
        self.world.tell(
            (_item(request), self.name), "{} gets a response to {}: {}", self.name, what, answer
        )
        if isinstance(answer, UnavailableError | DeadlineExceededError):
            if attempt < ATTEMPTS_MAX:
                self.after(self.world.between(*PAUSE_MS), partial(self._ask, request, attempt + 1))
                return
        elif not isinstance(answer, DroverError):
            self.acknowledged_count += 1
            if _is_written(request):
                request_id: str = request.request_id  # type: ignore[union-attr]
                self._rules.config_acknowledged(request_id, what)
        self.busy = False
        self._think()


class Drainer(Operator):
    """An operator who drains workers and ends their drains, one at a time."""

    def relieve(self, worker: str) -> None:
        """End a worker's drain."""
        if not self.busy:
            self._ask(requests.DrainWorker(worker, draining=False))

    def _think(self) -> None:
        self.after(self._network.mix.drain_ms, self._act)

    def _choose(self) -> requests.Request:
        worker = self.world.random.choice(self._workers)
        return requests.DrainWorker(worker, draining=self.world.chance(0.6))


def _item(request: requests.Request) -> str:
    if isinstance(request, requests.RestartTask):
        return request.task.connector
    if isinstance(request, requests.SubmitTaskConfigs):
        return request.connector
    if isinstance(request, requests.DrainWorker):
        return request.worker_id
    return request.name


def _is_written(request: requests.Request) -> bool:
    match request:
        case requests.RestartTask() | requests.DrainWorker():
            return False
        case requests.RestartConnector():
            return request.include_tasks or request.only_failed
        case _:
            return True
