"""Announces Drover's own Kafka cluster to the connectors of this engine."""

import os
import threading
from collections.abc import Callable

from confluent_kafka import KafkaException

from drover.dataplane.kafka.clients import shared_client
from drover.errors import DroverError
from drover.log.storage import KafkaStorage
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE, OwnCluster

_RETRY_S = 2.0


def announce_own_cluster(
    storage: KafkaStorage, stop: threading.Event, on_found: Callable[[str], None]
) -> None:
    """Set the environment variable now, and again with the cluster's id when brokers answer.

    Until then mirror connectors are refused and retried. ``on_found`` is called with the id, in
    another thread.
    """
    _announce(storage, "")

    def ask() -> None:
        while not stop.is_set():
            try:
                cluster_id = shared_client(storage).cluster_id_now()
            except (DroverError, KafkaException):
                stop.wait(_RETRY_S)
            else:
                _announce(storage, cluster_id)
                on_found(cluster_id)
                return

    threading.Thread(target=ask, name="own-cluster", daemon=True).start()


def _announce(storage: KafkaStorage, cluster_id: str) -> None:
    own = OwnCluster(cluster_id, storage.group_id, storage.topics.names)
    os.environ[OWN_CLUSTER_VARIABLE] = own.encoded()
