"""Drover's own Kafka cluster, which mirror connectors reach with clients of their own.

Its internal topics have configs with secrets, and its groups and transactional ids belong to other
connectors and to Drover's services. Clusters are compared by their ids, because one cluster has
many addresses. Standard library only.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drover.model.names import BROKER_TOPICS

#: The environment variable of an engine on Kafka with its cluster; the engine sets it.
OWN_CLUSTER_VARIABLE = "DROVER_ENGINE_OWN_CLUSTER"
#: Beginnings of the transactional ids of Drover's services, and of Kafka Connect's leader.
_OF_SERVICES = ("drover-groups-", "drover-claims-", "drover-cluster-", "connect-cluster-")
_SINK_GROUP = "connect-"
_RULE = (
    "in Drover's own Kafka cluster, which no setting of the worker allows; brokers' ACLs protect "
    "it from other clients"
)


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """The cluster with Drover's internal topics; picklable.

    Attributes:
        cluster_id: The brokers' id of the cluster; empty until they answered.
        group_id: The group of the workers.
        topics: The internal topics.
    """

    cluster_id: str
    group_id: str
    topics: frozenset[str]

    @classmethod
    def of_worker(cls, environment: Mapping[str, str] = os.environ) -> "OwnCluster | None":
        """The cluster in the engine's environment; None in embedded storage and elsewhere."""
        text = environment.get(OWN_CLUSTER_VARIABLE)
        if text is None:
            return None
        found = json.loads(text)
        return cls(found["cluster_id"], found["group_id"], frozenset(found["topics"]))

    def encoded(self) -> str:
        """The text for the environment variable."""
        return json.dumps(
            {
                "cluster_id": self.cluster_id,
                "group_id": self.group_id,
                "topics": sorted(self.topics),
            }
        )

    def is_at(self, cluster_id: str | None) -> bool:
        """Whether brokers with this id are of this cluster; None for brokers without ids."""
        return self.cluster_id == cluster_id

    def topics_fault(self, topics: Iterable[str]) -> str | None:
        """Why connectors must not use these topics, as a sentence."""
        found = sorted(self.topics.union(BROKER_TOPICS).intersection(topics))
        return f"the topic {found[0]} is internal {_RULE}" if found else None

    def group_fault(self, group: str, connector: str) -> str | None:
        """Why a connector must not change the offsets of a group, as a sentence."""
        if group in (f"{_SINK_GROUP}{connector}", f"drover-{connector}"):
            return None
        if group == self.group_id or group.startswith(
            (_SINK_GROUP, "drover-", f"{self.group_id}-")
        ):
            return f"the group {group[:80]!r} belongs to Drover or another connector {_RULE}"
        return None

    def transactional_id_fault(
        self, transactional_id: str, group: str, connector: str
    ) -> str | None:
        """Why a connector must not use a transactional id, as a sentence."""
        is_own = group == f"drover-{connector}" and not transactional_id.startswith(_OF_SERVICES)
        if is_own or not transactional_id.startswith((*_OF_SERVICES, f"{self.group_id}-")):
            return None
        return (
            f"the transactional id {transactional_id[:80]!r} may be that of a task or a service "
            f"{_RULE}"
        )
