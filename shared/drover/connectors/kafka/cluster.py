"""Access to another Kafka cluster: MirrorMaker's settings, and error messages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drover.connector import (
    REQUIRED,
    All,
    Check,
    ConfigKey,
    ConfigType,
    CredentialsRejectedError,
    Importance,
    NonEmpty,
    Password,
    RetriableError,
    Violation,
)
from drover.connectors.kafka.java_settings import librdkafka_settings
from drover.policy.client_setting_lists import Library
from drover.policy.client_settings import client_setting_faults
from drover.policy.egress import (
    AllowedHosts,
    ForbiddenHostError,
    hosts_fault,
    plain_host_of,
    split_hosts,
)
from drover.policy.kafka_users import principal_of
from drover.policy.own_cluster import OwnCluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import ClusterMetadata

TIMEOUT_S = 15
#: Timeouts of successive metadata requests; their sum is TIMEOUT_S.
_TRIES_S = (1, 2, 4, 8)
#: Brokers that were down in the first attempts may be up in the next one.
_AWAY_TRIES = 2
#: Lets the client deliver its error callbacks.
_POLL_S = 0.1
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_PORT = 9092
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_MORE = {
    "sasl.jaas.config": ": the login module with its options, of PlainLoginModule, "
    "ScramLoginModule or OAuthBearerLoginModule"
}
_SECRETS = (
    "sasl.jaas.config",
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
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
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)
#: Errors that a retry can fix although the client does not mark them: brokers are away, start or
#: hand over, names cannot be resolved, groups rebalance, quotas are used up.
_PASSING = frozenset(
    {
        *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_DESTROY_BROKER", "_UNKNOWN_BROKER"),
        *("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_IN_PROGRESS", "_WAIT_COORD"),
        *("_NODE_UPDATE", "_OUTDATED", "_RETRY", "_ISR_INSUFF", "_MAX_POLL_EXCEEDED"),
        *("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
        *("REPLICA_NOT_AVAILABLE", "PREFERRED_LEADER_NOT_AVAILABLE", "NOT_CONTROLLER"),
        *("ELIGIBLE_LEADERS_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"),
        *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR", "STALE_BROKER_EPOCH"),
        *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "OFFSET_NOT_AVAILABLE"),
        *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
        *("REBALANCE_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"),
        *("THROTTLING_QUOTA_EXCEEDED", "REBOOTSTRAP_REQUIRED"),
    }
)
#: In the client's report of a failed TLS handshake (_SSL). A broker that ends the connection during
#: the handshake is reported as _SSL too, but is an outage.
_MISTRUSTED = "certificate verify failed"


class ClusterError(Exception):
    """Another cluster refuses an operation; the message has the remedy."""


class LoginRejectedError(ClusterError, CredentialsRejectedError):
    """Another cluster rejects the credentials."""


class ReservedError(ClusterError):
    """Topics, groups or transactional ids of Drover's own cluster."""


def known_own_cluster() -> OwnCluster | None:
    """Drover's own cluster; None if Drover does not run on Kafka.

    Raises:
        RetriableError: Its brokers have not answered yet, so its id is unknown.
    """
    own = OwnCluster.of_worker()
    if own is not None and not own.cluster_id:
        raise RetriableError(
            "the brokers of Drover's own cluster have not answered yet: their cluster id is needed "
            "to protect its internal topics"
        )
    return own


def refuse(fault: str | None) -> None:
    """Raise ``ReservedError`` for a fault of ``OwnCluster``; None is no fault."""
    if fault is not None:
        raise ReservedError(fault)


def cluster_keys(prefix: str, which: str, *, required: bool = True) -> list[ConfigKey]:
    """The settings for connecting to a cluster; others below ``prefix`` go to the client."""
    return [
        ConfigKey(
            f"{prefix}bootstrap.servers",
            ConfigType.STRING,
            default=REQUIRED if required else None,
            importance=Importance.HIGH,
            group="Cluster",
            documentation=f"Brokers of {which} cluster, as host:port, comma-separated.",
            validator=All(NonEmpty(), Check(lambda text: hosts_fault(text, _PORT))),
        ),
        *(
            ConfigKey(
                prefix + name,
                ConfigType.PASSWORD,
                default=None,
                importance=Importance.MEDIUM,
                group="Cluster",
                documentation=f"A secret setting of Kafka's clients{_MORE.get(name, '')}.",
            )
            for name in _SECRETS
        ),
    ]


#: Conversion reads the files that these settings name.
_STORES = ("ssl.truststore.", "ssl.keystore.")


def client_settings(config: Mapping[str, Any], *prefixes: str) -> dict[str, str]:
    """The librdkafka settings from all settings below the prefixes; later prefixes take precedence.

    Raises:
        ValueError: A setting has no counterpart, or connectors must not set it.
    """
    for fault in client_faults(config, *prefixes):
        raise ValueError(f"{fault.field} {fault.description}")
    return _with_checked_servers(librdkafka_settings(_merged(config, prefixes)))


def _with_checked_servers(client: dict[str, str]) -> dict[str, str]:
    """The settings; raises ValueError for a server that connectors must not connect to.

    The client resolves the names again, and connects to the brokers that the servers name.
    """
    hosts = AllowedHosts.of_worker()
    url = client.get(_TOKEN_URL)
    pairs = [pair for name in _SERVERS for pair in split_hosts(client.get(name, ""), _PORT)]
    for host, port in [*pairs, *([] if url is None else [plain_host_of(url)])]:
        try:
            hosts.addresses(host, port)
        except ForbiddenHostError as error:
            raise ValueError(str(error)) from None
        except OSError:
            continue  # the client reports a name that cannot be resolved
    return client


def client_faults(config: Mapping[str, Any], *prefixes: str) -> list[Violation]:
    """All settings below the prefixes that connectors must not set, or that have no counterpart."""
    faults = [
        Violation(prefix + name, fault)
        for prefix in prefixes
        for name, fault in client_setting_faults(Library.LIBRDKAFKA, _below(config, prefix))
    ]
    return faults or _java_faults(config, prefixes)


def _java_faults(config: Mapping[str, Any], prefixes: Sequence[str]) -> list[Violation]:
    """The first setting of Java's clients without a counterpart; reads no files. Values with
    placeholders that are not resolved yet are not checked.
    """
    java = {
        name: value
        for name, value in _merged(config, prefixes).items()
        if "${" not in value and not name.startswith(_STORES)
    }
    try:
        librdkafka_settings(java)
    except ValueError as error:
        name, _, text = str(error).partition(" ")
        name = name.rstrip(":")
        owner = next((each for each in reversed(prefixes) if each + name in config), prefixes[0])
        return [Violation(owner + name, text)]
    return []


def _merged(config: Mapping[str, Any], prefixes: Sequence[str]) -> dict[str, str]:
    """All settings below the prefixes; later prefixes take precedence."""
    found: dict[str, str] = {}
    for prefix in prefixes:
        found |= _below(config, prefix)
    return found


def _below(config: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value.value if isinstance(value, Password) else str(value)
        for name, value in config.items()
        if name.startswith(prefix) and value is not None and name != f"{prefix}alias"
    }


def needed_rights(
    client: Mapping[str, str], *, topic: str = "", group: str = "", transactional_id: str = ""
) -> dict[str, str]:
    """The remedies for missing rights of the user of client settings, by the errors' names.

    Each argument has the operations and the resource, such as "Write on the topic t".
    """
    user = principal_of(client)
    needs = {
        "TOPIC_AUTHORIZATION_FAILED": topic,
        "GROUP_AUTHORIZATION_FAILED": group,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": transactional_id,
    }
    return {name: f"add an ACL that allows {user} {text}" for name, text in needs.items() if text}


def fault_of(error: "KafkaError", doing: str, needs: Mapping[str, str] | None = None) -> Exception:
    """The exception for an error of the client; ``needs`` are of ``needed_rights``."""
    text = f"{doing}: {error.str()} ({error.name()})"
    if needs and error.name() in needs:
        return ClusterError(f"{text}: {needs[error.name()]}")
    if error.name() in _REFUSED_CODES:
        rejected = "AUTHENTICATION" in error.name()
        return (LoginRejectedError if rejected else ClusterError)(
            f"{text}: check the user, the password and the user's rights"
        )
    if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
        return ClusterError(f"{text}: the topic was deleted, or has fewer partitions than before")
    if _is_mistrusted(error):
        return ClusterError(f"{text}: check the truststore, and the brokers' names in certificates")
    if error.retriable() or error.name() in _PASSING or error.name() == "_SSL":
        return RetriableError(text)
    return ClusterError(text)


def _is_mistrusted(error: "KafkaError") -> bool:
    return error.name() == "_SSL" and _MISTRUSTED in error.str()


@contextmanager
def translated_errors(
    doing: str, told: "Sequence[KafkaError]" = (), *, needs: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Convert the client's errors to ``ClusterError``, or ``RetriableError`` if a retry may help.

    ``told`` has the errors that the client reported asynchronously: a call that times out does not
    report a refused login or an untrusted certificate itself. ``needs`` as of ``fault_of``.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        refused = [e for e in told if e.name() in _REFUSED_CODES or _is_mistrusted(e)]
        raise fault_of(refused[-1] if refused else error.args[0], doing, needs) from error


def noting(told: "list[KafkaError]") -> "Callable[[KafkaError], None]":
    """An error callback for a client; keeps the last error of each kind."""

    def note(error: "KafkaError") -> None:
        told[:] = [*(each for each in told if each.name() != error.name()), error]

    return note


def topics_of(client: "Consumer | Producer", told: "Sequence[KafkaError]") -> "ClusterMetadata":
    """The cluster's topic metadata; the client's asynchronous errors are in ``told``.

    Raises:
        KafkaException: Brokers did not answer in time, or refused the login, which is reported only
            asynchronously.
    """
    from confluent_kafka import KafkaException

    for tried, timeout_s in enumerate(_TRIES_S, 1):
        try:
            found: ClusterMetadata = client.list_topics(timeout=timeout_s)
        except KafkaException:
            client.poll(_POLL_S)  # delivers the asynchronous errors
            names = {each.name() for each in told}
            away = tried >= _AWAY_TRIES and "_ALL_BROKERS_DOWN" in names
            if away or names.intersection(_REFUSED_CODES) or tried == len(_TRIES_S):
                raise
        else:
            return found
    raise AssertionError("a try returns or raises")
