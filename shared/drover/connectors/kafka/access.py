"""Checks, before a connector runs, what another cluster would reject; changes nothing there."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from drover.connector import Caution, SkippedCheck, Violation
from drover.connectors.kafka.cluster import TIMEOUT_S
from drover.policy.kafka_users import ALL_OF_CLUSTER, principal_of

_FORBIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
#: While brokers look up the coordinator of a group.
_PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_LOOKS, _LOOK_S = 10, 0.3
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")


class ClusterAccess:
    """What the user of client settings may do in a cluster; blocks.

    Methods raise KafkaException, and TimeoutError if brokers do not answer.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AdminClient

        self.user = principal_of(client)
        self._admin: AdminClient = AdminClient({**client, "log_level": 0})
        described = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=TIMEOUT_S
        ).result(TIMEOUT_S)
        self.broker_count = len(described.nodes)
        found = {each.name for each in described.authorized_operations or ()}
        self.is_super_user = found >= ALL_OF_CLUSTER

    def topics(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """The operations on each existing topic; empty where the user may not see the topic."""
        from confluent_kafka import KafkaException, TopicCollection

        asked = self._admin.describe_topics(
            TopicCollection(sorted(names)),
            include_authorized_operations=True,
            request_timeout=TIMEOUT_S,
        )
        found = {}
        for name, future in asked.items():
            try:
                operations = future.result(TIMEOUT_S).authorized_operations
            except KafkaException as error:
                if error.args[0].name() in _FORBIDDEN:
                    found[name] = frozenset[str]()
                elif error.args[0].name() not in _MISSING:
                    raise
            else:
                found[name] = frozenset(each.name for each in operations or ())
        return found

    def group(self, name: str) -> frozenset[str]:
        """The operations on a consumer group."""
        from confluent_kafka import KafkaException

        for attempt in range(_LOOKS):
            asked = self._admin.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=TIMEOUT_S
            )
            try:
                operations = asked[name].result(TIMEOUT_S).authorized_operations
            except KafkaException as error:
                if error.args[0].name() == "GROUP_AUTHORIZATION_FAILED":
                    break
                if error.args[0].name() not in _PASSING or attempt + 1 == _LOOKS:
                    raise
                self._admin.poll(_LOOK_S)  # a pause
            else:
                return frozenset(each.name for each in operations or ())
        return frozenset()

    def rejection(self, topic: str, replication_factor: int) -> Any:
        """The KafkaError for the creation of a topic; None if the brokers accept it."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(topic, 1, replication_factor)
        asked = self._admin.create_topics([wanted], validate_only=True, request_timeout=TIMEOUT_S)
        try:
            asked[topic].result(TIMEOUT_S)
        except KafkaException as error:
            return error.args[0]
        return None

    def lacks(self, operation: str, resource: str, more: str = "") -> str:
        """The text for a missing operation."""
        where = f"the {resource}{more}"
        return f"{self.user} lacks the operation {operation} on {where}: add an ACL for it"


def copies_faults(
    access: ClusterAccess,
    copies: Mapping[str, str],
    *,
    creates: bool,
    replication_factor: int,
    settings: tuple[str, str, str],
) -> Iterator[Violation]:
    """What the cluster would reject of copies.

    Args:
        access: The user's access to the cluster.
        copies: The copies' names and the settings that name the originals.
        creates: Whether missing copies are created.
        replication_factor: That of new copies.
        settings: The names of the settings for the replication factor, for creation and for names.
    """
    of_factor, of_creation, of_names = settings
    found = access.topics(copies)
    for copy, setting in copies.items():
        allowed = found.get(copy)
        if allowed is not None:
            if "WRITE" not in allowed:
                unseen = "" if allowed else ", or the topic does not exist"
                yield Violation(setting, access.lacks("Write", f"topic {copy}", unseen))
        elif not creates:
            text = f"is false, and the target cluster has no topic {copy}: create it"
            yield Violation(of_creation, text)
        else:
            yield from _of_new(access, copy, replication_factor, setting, of_factor, of_names)


def _of_new(
    access: ClusterAccess,
    copy: str,
    replication_factor: int,
    setting: str,
    of_factor: str,
    of_names: str,
) -> Iterator[Violation]:
    rejected = access.rejection(copy, replication_factor)
    if rejected is None:
        if not access.is_super_user:
            yield SkippedCheck(
                setting,
                f"whether {access.user} has Write on the topic {copy} was not checked: brokers "
                "answer this only for topics that exist",
            )
    elif rejected.name() in _FORBIDDEN:
        yield Violation(setting, access.lacks("Create", f"topic {copy}", ", which does not exist"))
    elif (
        rejected.name() == "INVALID_REPLICATION_FACTOR" and replication_factor > access.broker_count
    ):
        count = access.broker_count
        brokers = f"{count} broker{'' if count == 1 else 's'}"
        yield Violation(
            of_factor,
            f"is {replication_factor}, but the target cluster has {brokers}: set it to at most "
            f"{count} or to -1 for the brokers' default, or create the topic {copy}",
        )
    else:
        text = f"the target cluster rejects the topic {copy}: {rejected.str()}"
        yield Violation(of_names, text)


def group_faults(access: ClusterAccess, group: str, setting: str) -> Sequence[Violation]:
    """What the cluster would reject of a consumer group and of its transactional ids."""
    if access.is_super_user:
        return []
    skipped = SkippedCheck(
        setting,
        f"whether {access.user} has Write on the transactional ids {group}-… was not checked: no "
        "request of the client answers this",
    )
    if "READ" in access.group(group):
        return [skipped]
    return [Violation(setting, access.lacks("Read", f"consumer group {group}")), skipped]


def read_faults(
    access: ClusterAccess, topics: Collection[str], setting: str, *, reads_settings: bool
) -> Iterator[Violation]:
    """What the cluster would reject of reading topics; ``reads_settings``: also their settings."""
    found = access.topics(topics) if topics else {}
    unread = sorted(name for name, allowed in found.items() if "READ" not in allowed)
    if unread:
        yield Violation(setting, access.lacks("Read", f"topic {_listed(unread)}"))
    hidden = sorted(name for name, each in found.items() if "DESCRIBE_CONFIGS" not in each)
    if reads_settings and hidden:
        text = access.lacks("DescribeConfigs", f"topic {_listed(hidden)}")
        yield Caution(setting, f"{text}. Without, copies are created with the cluster's settings")


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
