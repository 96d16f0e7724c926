"""Which rebalance strategy a worker uses; the one place that names them."""

from drover_worker.core.context import Context
from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.cooperative import CooperativeStrategy
from drover_worker.core.rebalance.eager import EagerStrategy
from drover_worker.core.rebalance.strategy import RebalanceStrategy


def new_strategy(context: Context, work: Work) -> RebalanceStrategy:
    """The strategy of the worker that runs ``work``, as its settings want it."""
    settings = context.settings
    if settings.connect_protocol == "eager":
        return EagerStrategy(work, context.view)
    return CooperativeStrategy(
        work,
        context.view,
        delay_max_ms=settings.scheduled_delay_max_ms,
        sessioned=settings.connect_protocol == "sessioned",
    )
