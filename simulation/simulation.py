"""One simulated lifetime of a cluster: a safety phase with faults, then a liveness phase."""

import random
import traceback
from collections.abc import Collection
from dataclasses import dataclass

from simulation.breaker import Breaker
from simulation.cluster import Cluster
from simulation.health import failed_connectors, missing
from simulation.logs import quiet_logs
from simulation.mix import draw_mix
from simulation.operators import Drainer
from simulation.seeds import seed_text
from simulation.world import START_MS, STORY_LENGTH, BrokenRuleError, World

HEALING_MS = 60_000
LOOK_EVERY_MS = 200
MEND_EVERY_MS = 1_500


class SimulationError(AssertionError):
    """A rule was broken; the message holds the seed, the story and the replay command."""

    def __init__(self, seed: int, rule: str, text: str) -> None:
        super().__init__(seed, rule, text)
        self.rule = rule
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of a seed that passed."""

    seed: int
    step_count: int
    simulated_ms: int
    healing_ms: int
    generation: int
    config_record_count: int
    claim_count: int
    commit_count: int
    acknowledged_count: int
    fault_count: int

    def __str__(self) -> str:
        return (
            f"seed {seed_text(self.seed)} held: {self.fault_count} faults, {self.step_count} steps"
            f" in {self.simulated_ms / 1000:.0f} s, healed in {self.healing_ms / 1000:.1f} s;"
            f" generation {self.generation}, {self.config_record_count} config records,"
            f" {self.claim_count} claims, {self.commit_count} commits,"
            f" {self.acknowledged_count} answers to operators"
        )


class Simulation:
    """A cluster, its faults, and the two phases.

    Args:
        seed: The same seed gives the same run, in any process.
        on_kafka: Sources publish to brokers, each through its own producer.
        replay: The replay command for the failure message.
    """

    def __init__(self, seed: int, *, on_kafka: bool = False, replay: str = "") -> None:
        self.seed = seed
        self.world = World(seed)
        self._replay = replay or f"make simulate SEED={seed_text(seed)}"
        self._mix = draw_mix(self.world.random)
        self.cluster = Cluster(self.world, self._mix, on_kafka=on_kafka)
        self._breaker = Breaker(self.cluster)
        self._look_due_ms = 0
        self._mend_due_ms = 0
        self._missing = ""

    def run(self) -> Summary:
        """Run both phases.

        Raises:
            SimulationError: A rule was broken, or the cluster did not heal.
        """
        with quiet_logs():
            state = random.getstate()
            random.seed(self.seed)  # production code draws the length of its pauses from it
            try:
                return self._run()
            finally:
                self.world.close()
                random.setstate(state)

    def _run(self) -> Summary:
        try:
            self.world.run(START_MS + self._mix.faults_ms)
            self._breaker.active = False
            self.cluster.heal()
            faults_end_ms = self.world.now_ms
            if not self.world.run(faults_end_ms + HEALING_MS, self._is_healed):
                raise BrokenRuleError(
                    "a cluster heals", f"after {HEALING_MS} ms: {self._missing}", *self._concerned()
                )
            self._check_at_the_end()
        except BrokenRuleError as error:
            raise self._failure(error.rule, str(error), error.items) from error
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-4:])
            raise self._failure("nothing crashes", f"{error!r}\n{where}", ()) from error
        return self._summary(faults_end_ms)

    def story(self, items: Collection[str]) -> str:
        """The story of ``items``; the whole story when there are none."""
        return self.world.story(items, limit=STORY_LENGTH)

    def _is_healed(self) -> bool:
        now_ms = self.world.now_ms
        if now_ms < self._look_due_ms:
            return False
        self._look_due_ms = now_ms + LOOK_EVERY_MS
        if not self.cluster.live_workers:  # the last worker was stopped
            self.cluster.workers[0].start()
        if now_ms >= self._mend_due_ms:
            self._mend_due_ms = now_ms + MEND_EVERY_MS
            for name in failed_connectors(self.cluster)[:1]:
                self.cluster.operators[0].restart_failed(name)
            self._relieve_somebody()
        self._missing = missing(self.cluster)
        return not self._missing

    def _relieve_somebody(self) -> None:
        """End one worker's drain when all workers are drained: otherwise no work could run."""
        workers = self.cluster.live_workers
        drainer = self.cluster.operators[-1]
        if isinstance(drainer, Drainer) and all(worker.draining for worker in workers):
            drainer.relieve(workers[0].name)

    def _check_at_the_end(self) -> None:
        cluster = self.cluster
        cluster.config_store.check()
        cluster.data.read_back(sorted(cluster.rules.configs.connectors))
        cluster.rules.history_ended()
        for service in cluster.services:
            for runtime in service.runtimes:
                runtime.check_parked()

    def _concerned(self) -> Collection[str]:
        words = self._missing.replace(",", " ").replace("'", " ").split()
        names = {process.name for process in self.cluster.network.processes.values()}
        connectors = set(self.cluster.rules.configs.connectors)
        tasks = {f"{name}-{index}" for name in connectors for index in range(8)}
        return [word for word in words if word in names | connectors | tasks]

    def _failure(self, rule: str, text: str, items: Collection[str]) -> SimulationError:
        about = ", ".join(items) or "everything"
        return SimulationError(
            self.seed,
            rule,
            f"seed {seed_text(self.seed)}: {text}\n\nthe story of {about}:\n"
            f"{self.world.story(items)}\n\nreplay with: {self._replay}",
        )

    def _summary(self, faults_end_ms: int) -> Summary:
        cluster = self.cluster
        rules = cluster.rules
        return Summary(
            seed=self.seed,
            step_count=self.world.step_count,
            simulated_ms=self.world.now_ms - START_MS,
            healing_ms=self.world.now_ms - faults_end_ms,
            generation=max(rules.generations.values(), default=0),
            config_record_count=rules.configs.end_offset,
            claim_count=rules.claim_count,
            commit_count=rules.commit_count,
            acknowledged_count=sum(each.acknowledged_count for each in cluster.operators),
            fault_count=self._breaker.counts.total(),
        )
