"""Codecs of failures of connectors and tasks."""

from drover.api.common.v1 import failures_pb2 as pb
from drover.codec.common import EnumCodec, decode_timestamp, encode_timestamp
from drover.model.failures import Failure, FailureCause, FailureHistory

_CAUSES = EnumCodec(pb.FailureCause, "FAILURE_CAUSE_", FailureCause)


def encode_cause(cause: FailureCause) -> pb.FailureCause.ValueType:
    """As proto."""
    return _CAUSES.encode(cause)  # type: ignore[no-any-return]


def decode_cause(number: int) -> FailureCause:
    """As model; PLUGIN for unspecified and unknown causes."""
    if number == pb.FAILURE_CAUSE_UNSPECIFIED:
        return FailureCause.PLUGIN
    return _CAUSES.decode_response(number, FailureCause.PLUGIN)


def encode_failures(history: FailureHistory) -> pb.FailureHistory:
    """As proto."""
    return pb.FailureHistory(
        failures=[
            pb.Failure(
                fail_time=encode_timestamp(failure.failed_ms),
                cause=encode_cause(failure.cause),
                worker_id=failure.worker_id,
                message=failure.message,
            )
            for failure in history.failures
        ],
        failure_count=history.count,
        restart_time=encode_timestamp(history.restart_ms) if history.restart_ms else None,
        no_restart_reason=history.no_restart_reason,
        config_offset=history.config_offset,
    )


def decode_failures(message: pb.FailureHistory) -> FailureHistory:
    """As model."""
    return FailureHistory(
        config_offset=message.config_offset,
        failures=tuple(
            Failure(
                failed_ms=decode_timestamp(failure.fail_time),
                cause=decode_cause(failure.cause),
                worker_id=failure.worker_id,
                message=failure.message,
            )
            for failure in message.failures
        ),
        count=message.failure_count,
        restart_ms=decode_timestamp(message.restart_time),
        no_restart_reason=message.no_restart_reason,
    )
