"""Members of several generations claim and commit in any order, through two coordinators.

Each coordinator has its own store on the one data.db. Its generation may be behind the other's: it
was paused, or its shard has moved. The model's rules for a task: its claims only grow, no claim of
an older generation follows one of the latest generation, and exactly the last claim commits.
"""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drover.dataplane.store import EmbeddedStore
from drover.errors import FailedPreconditionError, Reason
from drover.model.claims import ClaimRequest
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets

MEMBERS = st.sampled_from(["a", "b", "c"])
TASKS = st.integers(0, 2)
STORES = st.integers(0, 1)


class Generations(RuleBasedStateMachine):
    """Workers that start slowly, retry, and keep committing under the claims they hold."""

    @initialize()
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name) / "data.db"
        self.stores = [EmbeddedStore(path) for _ in range(2)]
        for store in self.stores:
            store._database._writer.execute("PRAGMA synchronous = OFF")
        self.generation = 1
        self.request_count = 0
        #: claims that are requested and not yet executed
        self.on_the_way: list[ClaimRequest] = []
        #: every granted claim of each task, in order
        self.granted: dict[TaskId, list[tuple[ClaimRequest, Term]]] = {}
        #: the claim that each member believes to hold
        self.held: dict[tuple[str, TaskId], Term] = {}
        self.position = 0
        self.committed: dict[TaskId, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            for store in self.stores:
                store.close()
            self.directory.cleanup()

    @rule()
    def a_generation_begins(self) -> None:
        self.generation += 1

    @rule(member=MEMBERS, task=TASKS, behind=st.integers(0, 2))
    def a_member_asks(self, member: str, task: int, behind: int) -> None:
        """Request a claim in a past or present generation; the coordinator may be behind as
        well.
        """
        self.request_count += 1
        generation = max(1, self.generation - behind)
        request = ClaimRequest(
            TaskId("c", task), generation, member, f"{member}-{self.request_count}", 1
        )
        self.on_the_way.append(request)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), store=STORES, repeated=st.booleans())
    def claims_arrive(self, data: st.DataObject, store: int, repeated: bool) -> None:
        """Execute some pending requests in any order, in one transaction; some are repeated
        later.
        """
        picked = data.draw(
            st.lists(st.sampled_from(self.on_the_way), min_size=1, max_size=4, unique=True)
        )
        if not repeated:
            self.on_the_way = [each for each in self.on_the_way if each not in picked]
        for request, answer in zip(picked, self.stores[store].claim_tasks(picked), strict=True):
            self.check_answer(request, answer)

    def check_answer(self, request: ClaimRequest, answer: Term | FailedPreconditionError) -> None:
        task = request.task
        history = self.granted.setdefault(task, [])
        latest = history[-1][1] if history else None
        before = [term for earlier, term in history if earlier.request_id == request.request_id]
        if before and before[-1] == latest:
            assert answer == latest, "the same request has the same claim while it counts"
        elif before or (latest is not None and request.generation < latest.generation):
            assert isinstance(answer, FailedPreconditionError), "a slow starter took a task back"
            assert answer.reason is Reason.STALE_TERM
        else:
            assert isinstance(answer, Term)
            assert answer.generation == request.generation
            assert latest is None or answer > latest
            assert latest is None or answer.sequence == latest.sequence + 1
            history.append((request, answer))
        if isinstance(answer, Term):
            self.held[request.owner, task] = answer

    @precondition(lambda self: self.held)
    @rule(data=st.data(), store=STORES)
    def members_commit(self, data: st.DataObject, store: int) -> None:
        holders = data.draw(
            st.lists(st.sampled_from(sorted(self.held)), min_size=1, max_size=4, unique=True)
        )
        self.position += 1
        commits = [
            TaskOffsets(
                task,
                self.held[member, task],
                [CommittedOffset(f'{{"task":{task.task}}}', f'{{"at":{self.position}}}')],
            )
            for member, task in holders
        ]
        for commit, result in zip(commits, self.stores[store].commit_offsets(commits), strict=True):
            counts = self.granted[commit.task][-1][1] == commit.claim
            wanted = CommitOutcome.COMMITTED if counts else CommitOutcome.STALE_CLAIM
            assert result.outcome is wanted, (commit, result)
            if counts:
                self.committed[commit.task] = self.position

    @rule(store=STORES)
    def a_coordinator_starts_again(self, store: int) -> None:
        path = self.stores[store].path
        self.stores[store].close()
        self.stores[store] = EmbeddedStore(path)
        self.stores[store]._database._writer.execute("PRAGMA synchronous = OFF")

    @invariant()
    def both_see_the_claims_and_the_offsets(self) -> None:
        if not hasattr(self, "stores"):
            return
        wanted = {
            f'{{"task":{task.task}}}': f'{{"at":{position}}}'
            for task, position in self.committed.items()
        }
        for store in self.stores:
            for task, history in self.granted.items():
                assert store.current_claim(task) == (history[-1][1] if history else None)
            found = {each.partition_json: each.offset_json for each in store.fetch_offsets("c")}
            assert found == wanted


TestGenerations = Generations.TestCase
TestGenerations.settings = settings(max_examples=60, stateful_step_count=30)
