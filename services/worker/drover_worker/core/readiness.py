"""Whether health checks hear that this worker serves, and if not, why."""

from drover_worker.core.herder import Herder
from drover_worker.core.rebalance.stage import Stage

_ASKS_COORDINATOR = frozenset({Stage.JOINING, Stage.SYNCING, Stage.BACKING_OFF})


def why_not_serving(herder: Herder, *, opened: bool, turns: bool) -> str:
    """Why this worker does not serve; empty while it does.

    It serves from its first completed join on. A worker that loses its group later still serves:
    it answers calls, and joins again by itself.

    Args:
        herder: The herder.
        opened: Whether calls are answered: not while the process starts and ends.
        turns: Whether the herder handles events.
    """
    if not opened:
        return "the worker is starting or ending"
    if not turns:
        return f"the herder stands still: {herder.describe_stage()}"
    if herder.membership.has_joined:
        return ""
    group_id = herder.context.settings.group_id
    return f"the worker has not joined its group {group_id!r} yet: {_what_it_lacks(herder)}"


def _what_it_lacks(herder: Herder) -> str:
    """What it waits for, with the setting that says where that is."""
    context, membership = herder.context, herder.membership
    if membership.stage is Stage.STARTING:
        lacks = []
        if not context.engine_up:
            because = f" ({membership.reason})" if membership.reason else ""
            lacks.append(f"its Spark engine is not up{because}: DROVER_SPARK_MASTER")
        if not context.view.loaded:
            lacks.append("the config log has not been read: DROVER_CONFIG_STORE_ADDRESS")
        return "; ".join(lacks)
    if membership.stage in _ASKS_COORDINATOR:
        return f"{herder.describe_stage()}: DROVER_COORDINATOR_ADDRESS"
    return herder.describe_stage()
