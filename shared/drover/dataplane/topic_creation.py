"""The creation of missing topics (KIP-158)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drover.config.patterns import Pattern


@dataclass(frozen=True, slots=True)
class TopicRule:
    """The settings of a new topic; ``replication_factor`` None and -1 leave it to the cluster.

    ``config`` has topic settings such as cleanup.policy. Embedded storage uses only the partition
    count.
    """

    partition_count: int = 1
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


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
