"""Decides whether health checks report SERVING for this worker, and the reason if not."""

from drover_worker.core.herder import Herder
from drover_worker.core.rebalance.stage import Stage

_NEEDS_COORDINATOR = frozenset({Stage.JOINING, Stage.SYNCING, Stage.BACKING_OFF})


def why_not_serving(herder: Herder, *, opened: bool, turns: bool, engine_stall: str = "") -> str:
    """Why this worker does not serve; empty while it does.

    It serves after its first completed join. A worker that loses its group later still serves: it
    accepts calls, and rejoins automatically.

    Args:
        herder: The herder.
        opened: Whether the server accepts calls; false while the process starts and ends.
        turns: Whether the herder handles events.
        engine_stall: What is wrong with an engine that does not answer; empty while it answers.
    """
    if not opened:
        return "the worker is starting or ending"
    if not turns:
        return f"the herder handles no events: {herder.describe_stage()}"
    if engine_stall:
        return engine_stall
    if herder.membership.has_joined:
        return ""
    group_id = herder.context.settings.group_id
    return f"the worker has not joined its group {group_id!r} yet: {_obstacle(herder)}"


def _obstacle(herder: Herder) -> str:
    """Why the worker has not joined, with the setting of the service that it waits for."""
    context, membership = herder.context, herder.membership
    if membership.stage is Stage.STARTING:
        obstacles = []
        if not context.engine_up:
            reason = membership.reason
            obstacles.append(
                f"its Spark engine is not up ({reason}): DROVER_SPARK_MASTER"
                if reason
                else "its Spark engine is starting"
            )
        if not context.view.loaded:
            obstacles.append("the config log has not been read: DROVER_CONFIG_STORE_ADDRESS")
        return "; ".join(obstacles)
    if membership.stage in _NEEDS_COORDINATOR:
        return f"{herder.describe_stage()}: DROVER_COORDINATOR_ADDRESS"
    return herder.describe_stage()
