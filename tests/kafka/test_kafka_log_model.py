"""Any sequence of appends, claims, crashes and foreign transactions gives the model's result."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from drover.errors import FailedPreconditionError
from drover.log.log import LogRecord
from drover.model.ids import Term
from drover.testing import read_all
from tests.support.kafka.choice import Kafka
from tests.support.kafka.following import Following
from tests.support.kafka.logs import LogOnKafka

RECORDS = st.lists(
    st.builds(
        LogRecord,
        st.sampled_from([b"a", b"b", b""]),
        st.none() | st.binary(max_size=4),
        st.sampled_from(["", "r1"]),
        st.sampled_from(["", "me"]),
    ),
    min_size=1,
    max_size=4,
)
PROCESSES = st.integers(0, 1)
OWNERS = st.sampled_from(["w1", "w2"])
TERMS = st.builds(Term, st.integers(0, 3), st.integers(0, 2))


class Process:
    """One of several processes with the open log, and the records that its tail has delivered."""

    def __init__(self, opened: LogOnKafka, stack: AsyncExitStack) -> None:
        self.log = opened.log
        self.following = Following(self.log)
        self.stack = stack


class KafkaLogModel(RuleBasedStateMachine):
    """The model: every appended record, the claims, and the process that holds the last claim."""

    bootstrap: str

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"log-model-{uuid4().hex[:8]}-"
        self.runner = asyncio.Runner()
        self.appended: list[LogRecord] = []
        self.end = 0
        self.claims: list[tuple[str, Term]] = []
        self.holder: int | None = None
        self.processes = [self.run(self.started()) for _ in range(2)]

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    async def started(self) -> Process:
        stack = AsyncExitStack()
        opening = LogOnKafka.opened(self.bootstrap, self.prefix, timeout_s=30.0)
        return Process(await stack.enter_async_context(opening), stack)

    def raw(self, transactional_id: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(f"{self.prefix}configs", value=b"never", key=b"never")
        assert producer.flush(60) == 0
        return producer

    def add(self, records: list[LogRecord], end: int) -> None:
        assert end >= self.end + len(records)
        self.appended.extend(records)
        self.end = end

    @rule(process=PROCESSES, records=RECORDS)
    def append(self, process: int, records: list[LogRecord]) -> None:
        self.add(records, self.run(self.processes[process].log.append(records)))

    @rule(process=PROCESSES, records=RECORDS, behind=st.integers(0, 1))
    def append_privileged(self, process: int, records: list[LogRecord], behind: int) -> None:
        epoch = len(self.claims) - behind
        accepted = self.holder == process and behind == 0
        try:
            end = self.run(self.processes[process].log.append(records, epoch))
        except FailedPreconditionError:
            assert not accepted
        else:
            assert accepted
            self.add(records, end)

    @rule(process=PROCESSES, owner=OWNERS, term=TERMS)
    def claim(self, process: int, owner: str, term: Term) -> None:
        standing = self.claims[-1] if self.claims else None
        try:
            epoch = self.run(self.processes[process].log.claim(owner, term))
        except FailedPreconditionError:
            assert standing is not None
            assert term < standing[1] or (term == standing[1] and owner != standing[0])
            return
        if standing != (owner, term):
            assert standing is None or term > standing[1]
            self.claims.append((owner, term))
        assert epoch == len(self.claims)
        self.holder = process

    @rule(process=PROCESSES)
    def restart(self, process: int) -> None:
        self.run(self.processes[process].stack.aclose())
        self.processes[process] = self.run(self.started())
        if self.holder == process:
            self.holder = None

    @rule(process=PROCESSES, sequence=st.integers(0, 3))
    def a_writer_dies_in_a_transaction(self, process: int, sequence: int) -> None:
        """Another writer with the same transactional id; the next claim aborts its open
        transaction.
        """
        self.raw(f"connect-cluster-{self.prefix}cluster")
        self.holder = None
        last = self.claims[-1][1].generation if self.claims else 0
        self.claim(process, "after a crash", Term(last + 1, sequence))

    @rule()
    def somebody_aborts_a_transaction(self) -> None:
        self.raw(f"{self.prefix}somebody").abort_transaction(60)

    @invariant()
    def holds_what_the_model_says(self) -> None:
        for process in self.processes:
            stored = self.run(read_all(process.log))
            assert [one.record for one in stored] == self.appended
            assert self.run(process.log.end_offset()) == self.end
            assert self.end == (stored[-1].offset + 1 if stored else 0)
            self.run(process.following.brings_count(len(stored)))
            assert process.following.stored == stored

    def teardown(self) -> None:
        for process in self.processes:
            self.run(process.stack.aclose())
            self.run(asyncio.wait([process.following.task]))
        self.runner.close()


def test_a_log_on_kafka_does_what_the_model_says(kafka: Kafka) -> None:
    class OnThisBroker(KafkaLogModel):
        bootstrap = kafka.bootstrap

    run_state_machine_as_test(
        OnThisBroker,
        settings=settings(
            max_examples=5,
            stateful_step_count=12,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
