"""One simulated cluster: its processes and its faults."""

from collections.abc import Sequence

from drover.model.group import GroupDescription
from simulation.brokers import Brokers
from simulation.consumer import Consumer
from simulation.coordinator import Coordinator
from simulation.data_store import DataStore
from simulation.disk import Disk, Observer
from simulation.mix import Mix, healed
from simulation.network import Network
from simulation.operators import Drainer, Operator
from simulation.process import Process
from simulation.rules import Rules
from simulation.stores import ConfigStore, StatusStore
from simulation.worker import Worker
from simulation.world import World
from tests.support.lease_table import MemoryLeaseTable

WORKERS_MAX = 5


class Cluster:
    """All processes of one seed; with ``on_kafka``, sources publish to brokers."""

    def __init__(self, world: World, mix: Mix, *, on_kafka: bool = False) -> None:
        self.world = world
        self.mix = mix
        #: When the faults ended.
        self.healed_ms = 0
        self.network = Network(world, mix)
        self.rules = Rules(world)
        self.data = DataStore(self.network, self.rules)
        if on_kafka:
            self.data.brokers = Brokers(self.network, self.rules, self.data)
        rules, network = self.rules, self.network
        self.coordinators: list[Coordinator] = []
        names = [f"coordinator{index}" for index in range(mix.coordinator_count)]
        disks = [
            self._disk(f"groups-{shard}", rules.groups_written) for shard in range(mix.shard_count)
        ]
        table = MemoryLeaseTable(mix.shard_count) if len(names) > 1 else None
        self.coordinators.extend(
            Coordinator(network, name, rules, disks, self.data, table, self.coordinators)
            for name in names
        )
        self.config_store = ConfigStore(
            network, "config-store", rules, self._disk("config.log", rules.configs_written)
        )
        self.status_store = StatusStore(
            network, "status-store", rules, self._disk("status.log", rules.statuses_written)
        )
        self.workers: list[Worker] = []
        self.worker_names: list[str] = []
        self.operators = [
            Operator(network, f"operator{index}", rules, self.worker_names)
            for index in range(mix.operator_count)
        ]
        if mix.drain_ms:
            self.operators.append(Drainer(network, "drainer", rules, self.worker_names))
        self.consumers = [self._consumer(index) for index in range(mix.consumer_count)]
        for process in (*self.services, *self.operators, *self.consumers):
            self._add(process)
        for _ in range(mix.worker_count):
            self.add_worker()

    @property
    def services(self) -> Sequence[Coordinator | ConfigStore | StatusStore]:
        """The processes with logs."""
        return *self.coordinators, self.config_store, self.status_store

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group as an operator sees it; None while no coordinator serves it."""
        for coordinator in self.coordinators:
            if coordinator.alive and (found := coordinator.describe(group_id)) is not None:
                return found
        return None

    @property
    def live_workers(self) -> list[Worker]:
        """The workers that run at present."""
        return [worker for worker in self.workers if worker.alive]

    @property
    def breakable(self) -> list[Process]:
        """The running processes: faults apply to these."""
        engines = [worker.engine for worker in self.workers]
        all_processes = (*self.services, *self.workers, *engines, *self.consumers)
        return [each for each in all_processes if each.alive]

    def _consumer(self, index: int) -> Consumer:
        """A consumer of one of two groups; two static members may share an instance id."""
        group_id = f"group{index % 2}"
        dice = self.world.random
        instance_id = f"{group_id}/{dice.randrange(2)}" if dice.random() < 0.5 else None
        names = [each.name for each in self.coordinators]
        return Consumer(self.network, f"consumer{index}", self.rules, names, group_id, instance_id)

    def add_worker(self) -> None:
        """Start another worker."""
        name = f"worker{len(self.workers)}"
        worker = Worker(
            self.network,
            name,
            self.rules,
            self.data,
            [each.name for each in self.coordinators],
            self.draw_protocol(),
        )
        self.workers.append(worker)
        self.worker_names.append(name)
        self._add(worker)

    def draw_protocol(self) -> str:
        """Draw a worker's rebalance protocol: eager, compatible or sessioned."""
        if not self.world.chance(self.mix.cooperative):
            return "eager"
        return "sessioned" if self.world.chance(self.mix.signing) else "compatible"

    def heal(self) -> None:
        """End all faults and start every process that should run."""
        self.world.tell(("faults",), "faults end")
        self.healed_ms = self.world.now_ms
        self.network.mix = healed(self.mix)
        self.network.blocked.clear()
        for operator in self.operators:
            operator.willing = False
        for consumer in self.consumers:
            consumer.willing = False
        for process in self.network.processes.values():
            process.resume()
        for worker in self.workers:
            worker.engine.resume()
        for service in self.services:
            if not service.alive:
                service.start()
        if not self.live_workers:
            self.workers[0].start()

    def _disk(self, name: str, observe: Observer) -> Disk:
        return Disk(self.network, name, observe)

    def _add(self, process: Process) -> None:
        self.network.processes[process.name] = process
        process.start()
