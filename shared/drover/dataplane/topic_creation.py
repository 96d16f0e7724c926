"""How topics are made that records go to and that do not exist yet (KIP-158)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drover.transform.java_regex import JavaRegex


@dataclass(frozen=True, slots=True)
class TopicRule:
    """What a topic is made with; ``replication_factor`` None and -1 leave it to the cluster.

    ``config`` are topic settings such as cleanup.policy. On embedded storage only the partition
    count counts.
    """

    partition_count: int = 1
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A rule, and the topics that it is for: those that match an ``include`` and no ``exclude``."""

    rule: TopicRule
    include: tuple[JavaRegex, ...]
    exclude: tuple[JavaRegex, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether the rule is for the topic."""
        return any(each.matches(topic) for each in self.include) and not any(
            each.matches(topic) for each in self.exclude
        )


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """``named`` decides, else the first group that matches, else ``default``."""

    default: TopicRule
    groups: tuple[TopicGroup, ...] = ()
    named: Mapping[str, TopicRule] = field(default_factory=dict)

    def rule(self, topic: str) -> TopicRule:
        """What the topic is made with."""
        if topic in self.named:
            return self.named[topic]
        return next((each.rule for each in self.groups if each.matches(topic)), self.default)


#: One partition, and the rest as the cluster has it.
SINGLE_PARTITION = TopicCreation(TopicRule())
