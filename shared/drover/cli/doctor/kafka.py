"""Checks the Kafka brokers."""

import json
import socket
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from drover.cli.doctor.finding import Finding, Level
from drover.errors import InvalidArgumentError
from drover.log.storage import KafkaStorage, parse_storage

TIMEOUT_S = 5.0


def look_at_brokers(storage_url: str, client_config: str) -> list[Finding]:
    """Check that a bootstrap server answers, and that each broker accepts a connection.

    Args:
        storage_url: ``kafka://host:port,host:port``.
        client_config: The value of DROVER_KAFKA_CONFIG; findings must not show its passwords.
    """
    try:
        config = json.loads(client_config or "{}")
        storage = parse_storage(storage_url, group_id="drover", client_config=config)
        assert isinstance(storage, KafkaStorage)
        settings: dict[str, Any] = {
            **config,
            "bootstrap.servers": storage.bootstrap_servers,
            "log_level": 0,
            "error_cb": lambda _error: None,  # the call below raises them
        }
        admin = AdminClient(settings)
    except ValueError as error:
        return [Finding("brokers", Level.ERROR, f"DROVER_KAFKA_CONFIG is not JSON: {error}")]
    except (InvalidArgumentError, KafkaException, TypeError) as error:
        what = error.message if isinstance(error, InvalidArgumentError) else str(error)
        return [Finding("brokers", Level.ERROR, what, "correct DROVER_KAFKA_CONFIG")]
    try:
        found = admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        return [
            Finding(
                "brokers",
                Level.ERROR,
                f"none of {storage.bootstrap_servers} answers: {error.args[0].str()}",
                "start them, or correct the URL; security.protocol and the settings of TLS and SASL"
                " belong in DROVER_KAFKA_CONFIG",
            )
        ]
    findings = [Finding("brokers", Level.OK, f"{len(found.brokers)} in cluster {found.cluster_id}")]
    for broker in found.brokers.values():
        try:
            socket.create_connection((broker.host, broker.port), TIMEOUT_S).close()
        except OSError as error:
            findings.append(
                Finding(
                    f"broker {broker.id}",
                    Level.ERROR,
                    f"{broker.host}:{broker.port} cannot be reached: {error.strerror or error}",
                    "it advertises this address to clients: correct its advertised.listeners, or"
                    " the network between",
                )
            )
    return findings
