"""Which rebalance strategy a worker uses; the one place that names them."""

from drover_worker.core.lifecycle.work import Work
from drover_worker.core.rebalance.eager import EagerStrategy
from drover_worker.core.rebalance.strategy import RebalanceStrategy


def new_strategy(work: Work) -> RebalanceStrategy:
    """The strategy of the worker that runs ``work``."""
    return EagerStrategy(work)
