"""Questions of a validation's process about the cluster's topics, answered by its engine.

The engine has connections to the brokers and the rights; the process needs neither.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from drover.api.engine.v1 import engine_pb2 as pb
from drover.dataplane.plane import TopicChecks
from drover.dataplane.topic_creation import PlannedTopic, PlannedUse, TopicRule
from drover.errors import Caution, DroverError, Reason, SkippedCheck, UnavailableError, Violation

_KINDS: "Mapping[type[Violation], pb.StorageFault.Kind.ValueType]" = {
    Violation: pb.StorageFault.KIND_VIOLATION,
    Caution: pb.StorageFault.KIND_CAUTION,
    SkippedCheck: pb.StorageFault.KIND_SKIPPED,
}
_CLASSES = {kind: found for found, kind in _KINDS.items()}


def storage_facts(open_checks: Callable[[], TopicChecks]) -> pb.StorageFacts:
    """The properties of the storage that need no request."""
    try:
        checks = open_checks()
    except DroverError as error:
        return pb.StorageFacts(error=error.message)
    reserved = [
        pb.ReservedTopic(name=name, contents=contents)
        for name, contents in checks.reserved_topics().items()
    ]
    return pb.StorageFacts(reserved_topics=reserved, one_copy=checks.one_copy)


def answered(
    open_checks: Callable[[], TopicChecks], question: pb.StorageQuestion
) -> pb.StorageAnswer:
    """The answer to a question, which may be any: it comes from a process that ran plugin code."""
    try:
        checks = open_checks()
        match question.WhichOneof("question"):
            case "use":
                faults = checks.use_faults(_decode_use(question.use))
                return pb.StorageAnswer(faults=[_encode_fault(each) for each in faults])
            case "counted":
                found = checks.partition_counts(list(question.counted.names))
                counts = [
                    pb.TopicPartitionCount(topic=topic, partition_count=count)
                    for topic, count in found.items()
                ]
                return pb.StorageAnswer(partition_counts=counts)
            case "described":
                return pb.StorageAnswer(settings=checks.topic_settings(question.described))
            case "setting":
                name, value = question.setting.name, question.setting.value
                return pb.StorageAnswer(setting_fault=checks.setting_fault(name, value))
            case "list":
                return pb.StorageAnswer(topics=checks.topics())
            case _:
                return pb.StorageAnswer(error="the question is not known")
    except DroverError as error:
        return pb.StorageAnswer(error=error.message)
    except Exception as error:  # noqa: BLE001 - the question may be invalid in any way
        return pb.StorageAnswer(error=f"the question is invalid: {type(error).__name__}")


class AskedChecks:
    """See TopicChecks: the engine's answers."""

    def __init__(
        self, facts: pb.StorageFacts, ask: Callable[[pb.StorageQuestion], pb.StorageAnswer]
    ) -> None:
        """``ask`` sends a question and waits for the answer.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        if facts.error:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, facts.error)
        self._facts = facts
        self._ask = ask

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """See TopicChecks."""
        answer = self._answer(pb.StorageQuestion(counted=pb.TopicNames(names=topics)))
        return {each.topic: each.partition_count for each in answer.partition_counts}

    def topics(self) -> Collection[str]:
        """See TopicChecks."""
        return list(self._answer(pb.StorageQuestion(list=pb.ListTopics())).topics)

    def reserved_topics(self) -> Mapping[str, str]:
        """See TopicChecks."""
        return {each.name: each.contents for each in self._facts.reserved_topics}

    def use_faults(self, use: PlannedUse) -> Sequence[Violation]:
        """See TopicChecks."""
        answer = self._answer(pb.StorageQuestion(use=_encode_use(use)))
        return [_CLASSES[each.kind](each.setting, each.text) for each in answer.faults]

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """See TopicChecks."""
        return dict(self._answer(pb.StorageQuestion(described=topic)).settings)

    @property
    def one_copy(self) -> bool:
        """See TopicChecks."""
        return self._facts.one_copy

    def setting_fault(self, name: str, value: str) -> str:
        """See TopicChecks."""
        setting = pb.TopicSetting(name=name, value=value)
        return self._answer(pb.StorageQuestion(setting=setting)).setting_fault

    def _answer(self, question: pb.StorageQuestion) -> pb.StorageAnswer:
        answer = self._ask(question)
        if answer.error:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, answer.error)
        return answer


def _encode_fault(fault: Violation) -> pb.StorageFault:
    return pb.StorageFault(kind=_KINDS[type(fault)], setting=fault.field, text=fault.description)


def _encode_use(use: PlannedUse) -> pb.PlannedUse:
    return pb.PlannedUse(
        connector=use.connector,
        topics=[
            pb.PlannedTopic(
                setting=each.setting,
                name=each.name,
                operations=sorted(each.operations),
                rule=None if each.rule is None else _encode_rule(each.rule),
            )
            for each in use.topics
        ],
        group=use.group,
        offsets_topic=use.offsets_topic,
    )


def _encode_rule(rule: TopicRule) -> pb.TopicRule:
    return pb.TopicRule(
        partition_count=rule.partition_count,
        replication_factor=rule.replication_factor,
        config=rule.config,
        settings=rule.settings,
    )


def _decode_use(use: pb.PlannedUse) -> PlannedUse:
    topics = [
        PlannedTopic(
            each.setting,
            each.name,
            frozenset(each.operations),
            _decode_rule(each.rule) if each.HasField("rule") else None,
        )
        for each in use.topics
    ]
    return PlannedUse(
        connector=use.connector, topics=topics, group=use.group, offsets_topic=use.offsets_topic
    )


def _decode_rule(rule: pb.TopicRule) -> TopicRule:
    return TopicRule(
        rule.partition_count,
        rule.replication_factor if rule.HasField("replication_factor") else None,
        dict(rule.config),
        dict(rule.settings),
    )
