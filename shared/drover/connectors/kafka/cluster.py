"""How connectors reach another Kafka cluster: MirrorMaker's settings, and errors in words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drover.connector import (
    REQUIRED,
    ConfigKey,
    ConfigType,
    Importance,
    NonEmpty,
    Password,
    RetriableError,
)
from drover.connectors.kafka.java_settings import librdkafka_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import ClusterMetadata

TIMEOUT_S = 15
#: How long brokers are asked for their topics, each time anew: TIMEOUT_S together.
_TRIES_S = (1, 2, 4, 8)
#: Brokers that nobody could connect to in the first tries may be back in the next one.
_AWAY_TRIES = 2
#: For what the client was told to come out.
_POLL_S = 0.1
_MORE = {
    "sasl.jaas.config": ": the login module with its options, of PlainLoginModule, "
    "ScramLoginModule or OAuthBearerLoginModule"
}
_SECRETS = (
    "sasl.jaas.config",
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
)
_REFUSED_CODES = (
    "_AUTHENTICATION",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
)
#: What goes by though the client does not say so: brokers are away, or deal out their groups anew.
_PASSING = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
)


class ClusterError(Exception):
    """What another cluster refuses; the message says what to do."""


def cluster_keys(prefix: str, which: str, *, required: bool = True) -> list[ConfigKey]:
    """The settings by which a cluster is reached; all else below ``prefix`` goes to the client."""
    return [
        ConfigKey(
            f"{prefix}bootstrap.servers",
            ConfigType.STRING,
            default=REQUIRED if required else None,
            importance=Importance.HIGH,
            group="Cluster",
            documentation=f"Brokers of {which} cluster, as host:port, with commas between.",
            validator=NonEmpty(),
        ),
        *(
            ConfigKey(
                prefix + name,
                ConfigType.PASSWORD,
                default=None,
                importance=Importance.MEDIUM,
                group="Cluster",
                documentation=f"A secret, as Kafka's clients have it{_MORE.get(name, '')}.",
            )
            for name in _SECRETS
        ),
    ]


def client_settings(config: Mapping[str, Any], *prefixes: str) -> dict[str, str]:
    """What librdkafka is told: all settings below the prefixes, the last of a name wins.

    Raises:
        ValueError: a setting cannot be taken over.
    """
    found: dict[str, str] = {}
    for prefix in prefixes:
        for name, value in config.items():
            if not name.startswith(prefix) or value is None or name == f"{prefix}alias":
                continue
            text = value.value if isinstance(value, Password) else str(value)
            found[name.removeprefix(prefix)] = text
    return librdkafka_settings(found)


def fault_of(error: "KafkaError", doing: str) -> Exception:
    """What to raise for an error of the client."""
    text = f"{doing}: {error.str()} ({error.name()})"
    if error.name() in _REFUSED_CODES:
        return ClusterError(f"{text}: check the user, the password and what the user may do")
    if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
        return ClusterError(f"{text}: the topic is gone, or has fewer partitions than before")
    if error.retriable() or error.name() in _PASSING:
        return RetriableError(text)
    return ClusterError(text)


@contextmanager
def telling(doing: str, told: "Sequence[KafkaError]" = ()) -> Iterator[None]:
    """The client's errors as ``ClusterError``, or as ``RetriableError`` where waiting helps.

    ``told`` is what the client was told meanwhile: a call that waits for a broker in vain does not
    know that it refused the login.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        refused = [each for each in told if each.name() in _REFUSED_CODES]
        raise fault_of(refused[-1] if refused else error.args[0], doing) from error


def noting(told: "list[KafkaError]") -> "Callable[[KafkaError], None]":
    """What a client calls with its errors: the last one of each kind is kept."""

    def note(error: "KafkaError") -> None:
        told[:] = [*(each for each in told if each.name() != error.name()), error]

    return note


def topics_of(client: "Consumer | Producer", told: "Sequence[KafkaError]") -> "ClusterMetadata":
    """What a cluster knows of its topics; the client's errors go into ``told``.

    Raises:
        KafkaException: Brokers did not answer in time, or refused the login, which they say at
            once and the call itself would not.
    """
    from confluent_kafka import KafkaException

    for tried, timeout_s in enumerate(_TRIES_S, 1):
        try:
            found: ClusterMetadata = client.list_topics(timeout=timeout_s)
        except KafkaException:
            client.poll(_POLL_S)  # what brokers told comes out here alone
            names = {each.name() for each in told}
            away = tried >= _AWAY_TRIES and "_ALL_BROKERS_DOWN" in names
            if away or names.intersection(_REFUSED_CODES) or tried == len(_TRIES_S):
                raise
        else:
            return found
    raise AssertionError("a try returns or raises")
