"""Topics, groups and transactional ids of Drover's own Kafka cluster."""

import pytest

from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE, OwnCluster

OWN = OwnCluster("id", "workers", frozenset(("drover-configs", "drover-offsets")))


def test_the_environment_has_the_cluster() -> None:
    assert OwnCluster.of_worker({OWN_CLUSTER_VARIABLE: OWN.encoded()}) == OWN
    assert OwnCluster.of_worker({}) is None


@pytest.mark.parametrize("topic", ["drover-configs", "__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_reserved(topic: str) -> None:
    assert f"the topic {topic} is internal" in (OWN.topics_fault(["orders", topic]) or "")
    assert OWN.topics_fault(["orders", "drover-configs-2"]) is None


@pytest.mark.parametrize(
    "group", ["connect-b-sink", "connect-a", "drover-b", "workers", "workers-b", "connect-"]
)
def test_groups_of_others_are_reserved(group: str) -> None:
    assert "belongs to Drover or another connector" in (OWN.group_fault(group, "a-x") or "")


@pytest.mark.parametrize("group", ["connect-a-x", "drover-a-x", "mine"])
def test_groups_of_the_connector_and_others_are_free(group: str) -> None:
    assert OWN.group_fault(group, "a-x") is None


@pytest.mark.parametrize(
    ("named", "group"),
    [
        ("connect-cluster-workers-0", "connect"),
        ("drover-groups-workers-0", "drover"),
        ("drover-claims-workers-0", "drover-claims"),
        ("drover-cluster-x-0", "drover-cluster"),
        ("workers-b-0", "workers"),
    ],
)
def test_transactional_ids_of_services_and_tasks_are_reserved(named: str, group: str) -> None:
    assert "the transactional id" in (OWN.transactional_id_fault(named, group, "a-x") or "")


def test_a_connector_has_transactional_ids_of_its_own() -> None:
    assert OWN.transactional_id_fault("drover-a-x-orders-0", "drover-a-x", "a-x") is None
    assert OWN.transactional_id_fault("mine-orders-0", "mine", "a-x") is None
