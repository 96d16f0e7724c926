"""In any order of claims, only one task set commits, and each of its tasks has one owner."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets
from tests.support.folded_claims import FoldedStore

TASKS = st.integers(0, 2)
GENERATIONS = st.integers(1, 4)
SETS = st.integers(-1, 3)


class ClaimsMachine(RuleBasedStateMachine):
    """The store beside a model that keeps every claim ever granted."""

    store: EmbeddedStore | FoldedStore

    def open_store(self) -> EmbeddedStore | FoldedStore:
        self.directory = tempfile.TemporaryDirectory()
        store = EmbeddedStore(Path(self.directory.name) / "data.db")
        store._database._writer.execute("PRAGMA synchronous = OFF")
        return store

    @initialize()
    def open(self) -> None:
        self.store = self.open_store()
        self.request_count = 0
        #: Every granted claim with its request and its task set, in order.
        self.granted: list[tuple[TaskId, Term, str, int]] = []
        #: The current claims, and the requests that obtained them.
        self.counting: dict[TaskId, Term] = {}
        self.newest: tuple[int, int] | None = None
        self.generations: dict[TaskId, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        if hasattr(self, "directory"):
            self.directory.cleanup()

    @rule(task=TASKS, generation=GENERATIONS, configs=SETS)
    def claim(self, task: int, generation: int, configs: int) -> None:
        self.request_count += 1
        key = TaskId("c", task)
        request_id = f"r{self.request_count}"
        term = self._claim(key, generation, configs, request_id)
        same_set = self.newest is not None and self.newest[1] == configs
        if self.newest is not None and not same_set and (generation, configs) < self.newest:
            assert term is None
            return
        if same_set and generation < self.generations.get(key, 0):
            assert term is None
            return
        assert term is not None
        assert term.generation == generation
        assert all(term > earlier for owned, earlier, _, _ in self.granted if owned == key)
        if same_set:
            assert self.newest is not None
            self.newest = max(self.newest, (generation, configs))
        else:
            self.newest = (generation, configs)
            self.counting.clear()
            self.generations = dict.fromkeys(self.generations, generation)
        self.counting[key] = term
        self.generations[key] = generation
        self.granted.append((key, term, request_id, configs))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def repeat_a_request(self, data: st.DataObject) -> None:
        task, term, request_id, configs = data.draw(st.sampled_from(self.granted))
        assert self.newest is not None
        if self.counting.get(task) == term:
            assert self._claim(task, term.generation, configs, request_id) == term
        elif (term.generation, configs) < self.newest and configs != self.newest[1]:
            assert self._claim(task, term.generation, configs, request_id) is None

    @invariant()
    def exactly_the_claims_that_count_can_commit(self) -> None:
        if not hasattr(self, "store") or not self.granted:
            return
        commits = [
            TaskOffsets(task, term, [CommittedOffset("{}", "{}")])
            for task, term, _, _ in self.granted
        ]
        accepted = {
            granted
            for granted, result in zip(
                self.granted, self.store.commit_offsets(commits), strict=True
            )
            if result.outcome is CommitOutcome.COMMITTED
        }
        assert {(task, term) for task, term, _, _ in accepted} == set(self.counting.items())
        assert len({configs for _, _, _, configs in accepted}) == 1

    def _claim(self, task: TaskId, generation: int, configs: int, request_id: str) -> Term | None:
        try:
            return self.store.claim_task(
                task,
                generation=generation,
                owner="w",
                request_id=request_id,
                task_config_generation=configs,
            )
        except FailedPreconditionError as error:
            if error.reason is not Reason.STALE_TERM:
                raise
            return None


class FoldedClaimsMachine(ClaimsMachine):
    """The same rules on the state that is kept on Kafka."""

    def open_store(self) -> EmbeddedStore | FoldedStore:
        return FoldedStore()


TestClaims = ClaimsMachine.TestCase
TestClaims.settings = settings(max_examples=60, stateful_step_count=30)
TestFoldedClaims = FoldedClaimsMachine.TestCase
TestFoldedClaims.settings = settings(max_examples=100, stateful_step_count=30)
