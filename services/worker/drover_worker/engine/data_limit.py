"""A limit for the data of this Python process, where no control group limits the engine.

RLIMIT_DATA counts the memory that a process may write and shares with no other. RLIMIT_AS would
also count address space that is only reserved, of which a JVM and allocators have many times their
memory. The JVM has no such limit: its heap has one.
"""

import os
import resource

from drover_worker.engine.settings import DATA_LIMIT_VARIABLE


def limit_data() -> None:
    """Apply the limit of the environment, if there is one: exceeding it raises MemoryError."""
    text = os.environ.get(DATA_LIMIT_VARIABLE, "")
    if text:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(text) if most == resource.RLIM_INFINITY else min(int(text), most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def unlimit_data() -> None:
    """Lift the limit, for a program that this process becomes."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
