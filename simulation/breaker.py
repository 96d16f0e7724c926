"""Injects faults into a cluster at random times, at the rates drawn in the seed's mix."""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from drover.log.log import LogRecord
from drover_config_store.core.records import CommitRecord, encode
from simulation.cluster import WORKERS_MAX, Cluster
from simulation.engine import Engine
from simulation.mix import KINDS
from simulation.operators import TASKS_MAX
from simulation.process import Process
from simulation.worker import Worker

AWAY_MS = (10, 500, 3_000, 8_000)
PAUSES_MS = (200, 1_500, 5_000, 60_000)
PARTITIONS_MS = (300, 2_000, 6_000, 15_000)


class Breaker:
    """Draws faults from ``KINDS``; each fault has a limited duration."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.active = True
        self.counts: Counter[str] = Counter()
        self._kinds = cluster.mix.kinds
        self._weights = [KINDS[kind] for kind in self._kinds]
        self._breaks: Mapping[str, Callable[[], None]] = {
            "crash": self._crash,
            "pause": self._pause,
            "partition": self._partition,
            "lose engine": self._lose_engine,
            "stop worker": self._stop_worker,
            "add worker": self._add_worker,
            "restart service": self._restart_service,
            "compact": self._compact,
        }
        if self._kinds:
            self._later()
        # A separate generator: the draws of seeds without a stranger stay the same.
        self._stranger_dice = Random(cluster.mix.stranger_ms)
        if cluster.mix.stranger_ms:
            self._stranger_later()

    def _later(self) -> None:
        interval_ms = self._cluster.mix.fault_interval_ms
        self._world.after(self._world.between(interval_ms // 4, 2 * interval_ms), self._act)

    def _act(self) -> None:
        if not self.active:
            return
        (kind,) = self._world.random.choices(self._kinds, self._weights)
        self.counts[kind] += 1
        self._breaks[kind]()
        self._later()

    def _crash(self) -> None:
        process = self._choose()
        if process is None:
            return
        process.crash()
        if not isinstance(process, Engine):  # the worker restarts its engine
            self._start_later(process)

    def _choose(self) -> Process | None:
        breakable = self._cluster.breakable
        return self._world.random.choice(breakable) if breakable else None

    def _start_later(self, process: Process) -> None:
        away_ms = self._world.random.choice(AWAY_MS)
        self._start_again(process, self._world.between(1, away_ms))

    def _start_again(self, process: Process, away_ms: int) -> None:
        def start() -> None:
            if not process.alive:
                process.start()

        self._world.after(away_ms, start)

    def _pause(self) -> None:
        process = self._choose()
        if process is not None and not process.paused:
            process.pause(self._world.random.choice(PAUSES_MS))

    def _partition(self) -> None:
        cluster, dice = self._cluster, self._world.random
        names = [each.name for each in (*cluster.services, *cluster.workers, *cluster.operators)]
        source, target = dice.sample(names, 2)
        pairs = [(source, target)] if dice.random() < 0.5 else [(source, target), (target, source)]
        if dice.random() < 0.3:  # cut off from all processes
            pairs = [(source, name) for name in names] + [(name, source) for name in names]
        cluster.network.blocked.update(pairs)
        what = "cut off" if len(pairs) > 2 else "one way" if len(pairs) == 1 else "both ways"
        self._world.tell((source, target), "nothing from {} to {} ({})", source, target, what)

        def mend() -> None:
            self._world.tell((source, target), "{} and {} see each other again", source, target)
            cluster.network.blocked.difference_update(pairs)

        self._world.after(dice.choice(PARTITIONS_MS), mend)

    def _lose_engine(self) -> None:
        engines = [worker.engine for worker in self._cluster.workers if worker.engine.alive]
        if engines:
            self._world.random.choice(engines).lose_spark()

    def _stop_worker(self) -> None:
        """Stop a worker gracefully; it returns with another version, or not at all."""
        workers = [worker for worker in self._cluster.live_workers if not worker.paused]
        if not workers:
            return
        worker = self._world.random.choice(workers)
        worker.stop()
        if len(workers) == 1 or self._world.chance(0.7):
            self._come_back(worker)

    def _come_back(self, worker: Worker) -> None:
        def come_back() -> None:
            if not self.active:
                return
            if worker.alive:
                self._come_back(worker)
            else:
                worker.connect_protocol = self._cluster.draw_protocol()
                worker.start()

        self._world.after(self._world.between(200, 4_000), come_back)

    def _add_worker(self) -> None:
        if len(self._cluster.workers) < WORKERS_MAX:
            self._cluster.add_worker()

    def _restart_service(self) -> None:
        service = self._world.random.choice(self._cluster.services)
        if service.alive:
            service.crash("is restarted")
            self._start_later(service)

    def _stranger_later(self) -> None:
        self._world.after(self._cluster.mix.stranger_ms, self._stranger_writes)

    def _stranger_writes(self) -> None:
        """Write an incomplete task set: a commit marker that names more tasks than the log
        holds.
        """
        if not self.active:
            return
        self._stranger_later()
        cluster = self._cluster
        names = list(cluster.rules.configs.existing())
        if not names:
            return
        self.counts["stranger"] += 1
        store = cluster.config_store
        if store.alive:
            store.crash("is restarted, and a stranger writes meanwhile")
            self._start_again(store, 500)
        marker = CommitRecord(self._stranger_dice.choice(names), 2 * TASKS_MAX)
        record = LogRecord(*encode(marker))
        cluster.rules.marker_written_by_another(store.disk.append_by_another(record), record)

    def _compact(self) -> None:
        service = self._world.random.choice(self._cluster.services)
        for runtime in service.runtimes if service.alive else ():
            runtime.compact()
