"""Builds the reports that answer commands from the outcomes of plugin calls."""

from collections.abc import Iterable, Mapping

from drover.api.engine.v1 import engine_pb2
from drover.codec.failures import encode_cause
from drover.config.plugin_errors import describe_error
from drover.connector.catalogue import PluginNotFoundError
from drover.dataplane.plane import PartitionKey
from drover.errors import DroverError
from drover.model.failures import FailureCause
from drover.rpc.status import to_rpc_status
from drover_worker.engine.plugins.threads import Raised, TimedOut, cap_text, format_trace
from drover_worker.shell.process_loggers import LoggerState

_MESSAGE_MAX_BYTES = 4 * 1024
_DOMAIN = "connect.drover"


def done(call_id: int) -> engine_pb2.EngineReport:
    """The command succeeded."""
    return engine_pb2.EngineReport(call_id=call_id, done=engine_pb2.Done())


def own_cluster_found(cluster_id: str) -> engine_pb2.EngineReport:
    """The brokers of Drover's own cluster answered."""
    found = engine_pb2.OwnClusterFound(cluster_id=cluster_id)
    return engine_pb2.EngineReport(own_cluster_found=found)


def loggers(call_id: int, states: Iterable[LoggerState]) -> engine_pb2.EngineReport:
    """The loggers of this process."""
    report = engine_pb2.EngineReport(call_id=call_id, loggers=engine_pb2.LoggerList())
    for state in states:
        shown = report.loggers.loggers.add(name=state.name, level=state.level)
        if state.changed_ms is not None:
            shown.last_change_time.FromMilliseconds(state.changed_ms)
    return report


def end_offset_list(ends: Mapping[PartitionKey, int]) -> engine_pb2.EndOffsetList:
    """The end offsets of topic partitions."""
    found = engine_pb2.EndOffsetList()
    for (topic, partition), end_offset in ends.items():
        entry = found.entries.add(end_offset=end_offset)
        entry.partition.topic, entry.partition.partition = topic, partition
    return found


def failed(
    call_id: int,
    message: str,
    *,
    trace: str = "",
    plugin_not_found: bool = False,
    timed_out: bool = False,
    cause: FailureCause = FailureCause.PLUGIN,
) -> engine_pb2.EngineReport:
    """The command failed."""
    return engine_pb2.EngineReport(
        call_id=call_id,
        failure=engine_pb2.Failure(
            message=cap_text(message, _MESSAGE_MAX_BYTES),
            trace=trace,
            plugin_not_found=plugin_not_found,
            timed_out=timed_out,
            cause=encode_cause(cause),
        ),
    )


def refused(call_id: int, error: DroverError) -> engine_pb2.EngineReport:
    """The command failed, and the caller gets ``error`` unchanged."""
    report = failed(call_id, error.message)
    report.failure.status = to_rpc_status(error, _DOMAIN).SerializeToString()
    return report


def failure_of(
    call_id: int,
    what: str,
    outcome: Raised | TimedOut,
    *,
    cause: FailureCause = FailureCause.PLUGIN,
) -> engine_pb2.EngineReport:
    """Report a call that raised or timed out; ``what`` names it, ``cause`` who is at fault."""
    if isinstance(outcome, TimedOut):
        message = timed_out_message(what, outcome.limit_ms)
        trace = timed_out_message(what, outcome.limit_ms, outcome.stack)
        return failed(call_id, message, trace=trace, timed_out=True)
    error = outcome.error
    if isinstance(error, PluginNotFoundError):
        return failed(call_id, str(error), plugin_not_found=True)
    if isinstance(error, DroverError):
        return failed(call_id, f"{what}: {error.message}", trace=format_trace(error), cause=cause)
    message = f"{what} raised {describe_error(error)}"
    return failed(call_id, message, trace=format_trace(error), cause=cause)


def timed_out_message(what: str, limit_ms: int, stack: str = "") -> str:
    """The failure message for an abandoned call; ``stack`` has the calls in which it hangs."""
    message = f"{what} did not return within {limit_ms / 1000:g} s and was abandoned"
    return f"{message}\nit hangs in:\n{stack}" if stack else message
