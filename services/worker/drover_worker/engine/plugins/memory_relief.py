"""Frees memory after an error for lack of it, so that the error can be reported."""

import traceback

from drover.dataplane.answers import with_causes
from drover_worker.engine.data_limit import grant_reserve


def relieve_memory(error: BaseException) -> None:
    """If memory ran out, drop what the ended calls of the error hold, and grant the reserve.

    The error keeps its traceback; the variables of its calls are gone.
    """
    for each in with_causes(error):
        if isinstance(each, MemoryError):
            grant_reserve()
            traceback.clear_frames(each.__traceback__)
