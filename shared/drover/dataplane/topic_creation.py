"""The creation of missing topics (KIP-158)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """The rule of a topic: ``named`` first, then the first group that matches, then ``default``."""

    default: TopicRule
    groups: tuple[TopicGroup, ...] = ()
    named: Mapping[str, TopicRule] = field(default_factory=dict)

    def rule(self, topic: str) -> TopicRule:
        """The rule of a topic."""
        if topic in self.named:
            return self.named[topic]
        return next((each.rule for each in self.groups if each.matches(topic)), self.default)


#: One partition, and the cluster's defaults.
SINGLE_PARTITION = TopicCreation(TopicRule())
