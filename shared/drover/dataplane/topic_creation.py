"""The creation of missing topics (KIP-158)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from drover.config.patterns import Pattern


@dataclass(frozen=True, slots=True)
class TopicRule:
    """The settings of a new topic; ``replication_factor`` None and -1 leave it to the cluster.

    ``config`` has topic settings such as cleanup.policy. Embedded storage has one copy of each
    topic, and only the settings in ``topic_settings.NAMES``. ``settings`` names the connector's
    settings that the rule was made from, by PARTITIONS, REPLICATION_FACTOR and the names of topic
    settings: for messages.
    """

    partition_count: int = 1
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A rule, and its topics: those that match an ``include`` and no ``exclude`` pattern."""

    rule: TopicRule
    include: tuple[Pattern, ...]
    exclude: tuple[Pattern, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether the rule applies to the topic."""
        return any(each.matches(topic) for each in self.include) and not any(
            each.matches(topic) for each in self.exclude
        )


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """The rule of a topic: ``named`` first, then the first group that matches, then ``default``.

    With ``grows`` an existing topic gets more partitions if a record is for one that it lacks.
    """

    default: TopicRule
    groups: tuple[TopicGroup, ...] = ()
    named: Mapping[str, TopicRule] = field(default_factory=dict)
    grows: bool = False

    def rule(self, topic: str) -> TopicRule:
        """The rule of a topic."""
        if topic in self.named:
            return self.named[topic]
        return next((each.rule for each in self.groups if each.matches(topic)), self.default)

    @property
    def rules(self) -> tuple[TopicRule, ...]:
        """Every rule."""
        return (self.default, *(each.rule for each in self.groups), *self.named.values())

    def for_copies(
        self, originals: Mapping[str, TopicRule], *, counts_set: bool
    ) -> "TopicCreation":
        """Create copies like their originals, which are given by the names of the copies.

        Topic settings and the replication factor of these rules take precedence. With
        ``counts_set`` so do their partition counts, if they are larger; a copy never has fewer
        partitions than its original.
        """

        def merged(rule: TopicRule, original: TopicRule) -> TopicRule:
            count = original.partition_count
            if counts_set:
                count = max(count, rule.partition_count)
            config = {**original.config, **rule.config}
            return replace(rule, partition_count=count, config=config)

        copies = {
            topic: merged(self.rule(topic), original)
            for topic, original in originals.items()
            if topic not in self.named
        }
        # transforms may rename copies
        most = max(each.partition_count for each in originals.values())
        default = merged(self.default, TopicRule(most))
        return TopicCreation(default, self.groups, {**self.named, **copies}, grows=True)


#: One partition, and the cluster's defaults.
SINGLE_PARTITION = TopicCreation(TopicRule())


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that a connector is going to use.

    Attributes:
        setting: The setting that names the topic; the first fault of the topic is reported there.
        name: The topic; empty for new topics whose names are not known yet.
        operations: What the connector does with it: READ, WRITE.
        rule: How the connector creates the topic if it is missing; None: it does not.
    """

    setting: str
    name: str
    operations: frozenset[str] = frozenset()
    rule: TopicRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUse:
    """The topics and the consumer group that a connector is going to use.

    Attributes:
        connector: The connector's name.
        topics: Its topics.
        group: The consumer group of a sink's offsets; empty for a source.
        offsets_topic: The own offsets topic of a source; empty if it has none.
    """

    connector: str
    topics: Sequence[PlannedTopic]
    group: str = ""
    offsets_topic: str = ""


READ, WRITE = "READ", "WRITE"
