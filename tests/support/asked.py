"""Checks of topics as a validation's process makes them: by questions to its engine."""

from collections.abc import Callable

from drover.api.engine.v1 import engine_pb2
from drover.dataplane.plane import TopicChecks
from drover_worker.engine.plugins.storage_questions import AskedChecks, answered, storage_facts


def asked(open_checks: Callable[[], TopicChecks]) -> Callable[[], AskedChecks]:
    """A function that opens checks; each question and each answer is encoded and decoded."""

    def ask(question: engine_pb2.StorageQuestion) -> engine_pb2.StorageAnswer:
        sent = engine_pb2.StorageQuestion.FromString(question.SerializeToString())
        answer = answered(open_checks, sent).SerializeToString()
        return engine_pb2.StorageAnswer.FromString(answer)

    return lambda: AskedChecks(storage_facts(open_checks), ask)
