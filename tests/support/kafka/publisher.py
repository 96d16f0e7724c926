"""Takes the steps of a transactional writer as the core of a task decides, on this thread."""

from collections.abc import Callable, Sequence

from drover.dataplane.kafka.staging import StagedFiles
from drover.dataplane.kafka.transactional import ExactlyOnceWriter
from drover.dataplane.plane import AbandonedError, ProducerFencedError, Receipt
from drover.model.offsets import CommittedOffset
from drover_worker.engine.core.failures import Failure, FailureKind
from drover_worker.engine.core.publishing import Ended, Publishing, PublishingStep


class Publisher:
    """Publishes with a writer; once ``abandoned`` returns True, nothing is committed."""

    def __init__(
        self, writer: ExactlyOnceWriter, abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self.writer = writer
        self._abandoned = abandoned
        self._steps = Publishing()

    def open(self) -> None:
        """Become the task's only writer."""
        self._steps.start_over()
        self._run_until(PublishingStep.FETCH)

    def opened(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        """Pass the coordinator's offsets; returns those to start from."""
        found = self.writer.starts(committed)
        self._steps.ended(Ended.DONE)
        if found.behind:
            self.publish([], found.behind)
        return found.committed

    def publish(self, staged: Sequence[StagedFiles], offsets: Sequence[CommittedOffset]) -> Receipt:
        """Publish staged batches; raises the error of a batch that was not published."""
        self._steps.begin_batch()
        self._run_until(PublishingStep.READY, staged, offsets)
        return self.writer.published(staged)

    def close(self) -> None:
        """Close the writer."""
        self.writer.close()
        self._steps.start_over()

    def _run_until(
        self,
        wanted: PublishingStep,
        staged: Sequence[StagedFiles] = (),
        offsets: Sequence[CommittedOffset] = (),
    ) -> None:
        while self._steps.step is not wanted:
            failure = self._take(staged, offsets)
            if failure is not None and self._steps.step is not wanted:
                raise failure.error
            self._steps.validate()

    def _take(
        self, staged: Sequence[StagedFiles], offsets: Sequence[CommittedOffset]
    ) -> Failure | None:
        writer, step = self.writer, self._steps.step
        if step is PublishingStep.COMMIT and self._abandoned():
            raise AbandonedError("the task was abandoned")
        take: dict[PublishingStep, Callable[[], None]] = {
            PublishingStep.INIT: writer.init,
            PublishingStep.CHECK_CLAIM: writer.check_claim,
            PublishingStep.PRODUCE: lambda: writer.produce(staged),
            PublishingStep.ADD_OFFSETS: lambda: writer.add_offsets(offsets),
            PublishingStep.COMMIT: writer.commit,
        }
        try:
            take[step]()
        except ProducerFencedError as error:
            failure = Failure(error=error.meaning, kind=FailureKind.FENCED)
            return self._steps.failed(failure)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return self._steps.failed(Failure(error=error))
        return self._steps.succeeded()
