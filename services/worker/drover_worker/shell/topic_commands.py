"""The engine's commands for operators' use of topics."""

from abc import ABC, abstractmethod

from drover.api.common.v1.topics_pb2 import TopicDescription
from drover.api.engine.v1 import engine_pb2 as pb
from drover.errors import FailedPreconditionError, Reason
from drover.rpc.status import from_rpc_status
from drover_worker.engine.settings import PRODUCE_MS, EngineLimits


class TopicCommands(ABC):
    """Sends commands to the engine and returns its answers."""

    _limits: EngineLimits

    @abstractmethod
    async def _call(self, command: pb.EngineCommand, limit_ms: int) -> pb.EngineReport:
        """Send a command and wait for its answer.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
            DeadlineExceededError: The engine did not answer in time.
        """

    async def list_topics(self, after: str, count_max: int) -> pb.TopicList:
        """Topics by name, after ``after``. This and the next two calls raise the errors of
        ``engine.topics.reads``, and UnavailableError ENGINE_UNAVAILABLE.
        """
        wanted = pb.ListTopics(after=after, count_max=count_max)
        return (await self.ask(pb.EngineCommand(list_topics=wanted))).topics

    async def describe_topic(self, topic: str) -> TopicDescription:
        """A topic's partitions and settings."""
        wanted = pb.DescribeTopic(topic=topic)
        return (await self.ask(pb.EngineCommand(describe_topic=wanted))).topic

    async def read_topic(self, wanted: pb.ReadTopic) -> pb.TopicRecords:
        """Some records of a topic."""
        return (await self.ask(pb.EngineCommand(read_topic=wanted))).topic_records

    async def produce_records(self, wanted: pb.ProduceRecords) -> pb.ProducedRecords:
        """Write the records of an input, all or none. Raises the errors of
        ``engine.topics.writes``.
        """
        command = pb.EngineCommand(produce_records=wanted)
        return (await self.ask(command, PRODUCE_MS)).produced_records

    async def ask(self, command: pb.EngineCommand, limit_ms: int | None = None) -> pb.EngineReport:
        """The answer to a command; PREVIEW_FAILED if it is an error of a plugin."""
        report = await self._call(command, limit_ms or self._limits.start_ms)
        if report.WhichOneof("report") == "failure":
            failure = report.failure
            if failure.status:
                raise from_rpc_status(failure.status)
            raise FailedPreconditionError(Reason.PREVIEW_FAILED, failure.message)
        return report
