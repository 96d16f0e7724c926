"""Translates Kafka's errors into errors for callers."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from drover.errors import (
    DataLossError,
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
)

TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
UNKNOWN_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
#: Wrong credentials or certificates; reported by the error callback, not as the result of a call.
REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
#: Part of OpenSSL's message if the other side rejected the handshake.
_TLS_ALERT: Final = "SSL alert number"
FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
LIVE_GROUP: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.NON_EMPTY_GROUP,
    }
)
LOST: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
CORRUPT: Final = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG})
_WRONG_SETTINGS: Final = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: No broker responded, so an immediate retry is useless.
SILENCE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)
#: While brokers look up or load the coordinator of a group.
LOOKING_UP: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
BAD_RECORD: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})


def as_error(
    error: KafkaError,
    *,
    doing: str,
    topic: str,
    brokers: str,
    user: str = "",
    operation: str = "",
    resource: str = "",
) -> DroverError:
    """The error for a caller; see ``KafkaClient.translated``."""
    code = error.code()
    where = f"{doing}: {error.str()}"
    metadata = {"kafkaError": error.name(), "brokers": brokers}
    if topic:
        metadata["topic"] = topic
    if code in TOO_LARGE:
        return InvalidArgumentError(
            Reason.TOO_LARGE,
            f"{where}. Send a smaller record, or raise max.message.bytes of the topic {topic} and"
            " message.max.bytes in DROVER_KAFKA_CONFIG",
            metadata=metadata,
        )
    if code in BAD_RECORD:
        return InvalidArgumentError(Reason.INVALID_REQUEST, where, metadata=metadata)
    if code in FENCED:
        return FailedPreconditionError(
            Reason.STALE_WRITER_EPOCH, f"{where}: fenced by another writer", metadata=metadata
        )
    if code in LIVE_GROUP:
        return FailedPreconditionError(
            Reason.NON_EMPTY_GROUP,
            f"{where}. The consumer group has live members: stop them first",
            metadata=metadata,
        )
    if code in LOST or code in CORRUPT:
        return DataLossError(Reason.LOG_CORRUPT, where, metadata=metadata)
    if is_refusal(error):
        return misconfigured(
            f"{doing}: the brokers {brokers} reject the connection ({error.str()}). Check the"
            " security settings in DROVER_KAFKA_CONFIG",
            metadata,
        )
    if code in FORBIDDEN:
        user = user or "the user in DROVER_KAFKA_CONFIG"
        wanted = f"the operation {operation} on" if operation else "to use"
        on = resource or _resource(code, topic)
        return misconfigured(f"{where}. Add an ACL that allows {user} {wanted} {on}", metadata)
    if code in UNKNOWN_TOPIC:
        return misconfigured(
            f"{where}. Check that the topic {topic} exists and has this partition", metadata
        )
    if code in _WRONG_SETTINGS:
        return misconfigured(where, metadata)
    return UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"{where} (brokers {brokers}). Check that they run and are reachable from here, then retry",
        metadata=metadata,
    )


def _resource(code: int, topic: str) -> str:
    """The kind of resource of an authorization error, with its name if it is known."""
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"the topic {topic}" if topic else "the topic"
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return "the consumer group"
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return "the transactional id"
    return "the cluster"


def is_refusal(error: KafkaError) -> bool:
    """Whether authentication failed, on either side.

    A broker rejects a client's certificate after the connection is established, so the client sees
    a lost connection with a TLS alert.
    """
    return error.code() in REFUSED or _TLS_ALERT in error.str()


def kafka_code(error: DroverError) -> int | None:
    """The code of the Kafka error that caused ``error``; None for another cause."""
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


def is_silence(error: DroverError) -> bool:
    """Whether no broker responded, so that an immediate retry is useless."""
    return isinstance(error.__cause__, TimeoutError) or kafka_code(error) in SILENCE


def misconfigured(message: str, metadata: dict[str, str]) -> FailedPreconditionError:
    """The error for a condition that an operator has to fix."""
    return FailedPreconditionError(Reason.STORAGE_MISCONFIGURED, message, metadata=metadata)


def lost_records(topic: str, partition: int, offset: int, what: str) -> DataLossError:
    """The error for records that were removed before a reader has read them."""
    return DataLossError(
        Reason.LOG_CORRUPT,
        f"partition {partition} of the topic {topic} cannot be read from offset {offset}: {what}."
        " Restart to read the present records, or restore the topic",
        metadata={"topic": topic, "partition": str(partition), "offset": str(offset)},
    )
