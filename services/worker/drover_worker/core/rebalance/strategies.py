"""Creates the rebalance strategy of a worker."""

from drover_worker.core.context import Context
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.cooperative import CooperativeStrategy
from drover_worker.core.rebalance.eager import EagerStrategy
from drover_worker.core.rebalance.strategy import RebalanceStrategy


def new_strategy(context: Context, work: Work) -> RebalanceStrategy:
    """Create the strategy that the worker's settings select, for its ``work``."""
    settings = context.settings
    if settings.connect_protocol == "eager":
        return EagerStrategy(work, context.view)
    return CooperativeStrategy(
        work,
        context.view,
        delay_max_ms=settings.scheduled_delay_max_ms,
        sessioned=settings.connect_protocol == "sessioned",
    )
