"""Environment variables and exit codes of an engine's processes.

Standard library only, because the guard imports it.
"""

from enum import IntEnum

#: Marks every process of an engine's tree: the herder kills processes that the guard missed.
TREE_VARIABLE = "DROVER_ENGINE_TREE"
#: The directory for an engine's temporary files; its guard creates and removes it.
DIRECTORY_VARIABLE = "DROVER_ENGINE_DIRECTORY"
#: The prefix of that directory's name.
DIRECTORY_PREFIX = "drover-engine-"
#: Files of control groups that the guard joins, separated by colons.
GROUPS_VARIABLE = "DROVER_ENGINE_GROUPS"
#: The limit of the data of each Python process (RLIMIT_DATA), in bytes.
DATA_LIMIT_VARIABLE = "DROVER_ENGINE_DATA_LIMIT"
#: The descriptor of the ``in_flight`` table.
IN_FLIGHT_VARIABLE = "DROVER_ENGINE_IN_FLIGHT"

#: The storage of topics, for Spark's Python workers: ON_KAFKA, or EMBEDDED.
STORAGE_VARIABLE = "DROVER_ENGINE_STORAGE"
ON_KAFKA = "kafka"
EMBEDDED = "embedded"


class ExitCode(IntEnum):
    """Exit codes of an engine process. A signal shows as 128 + its number."""

    STOPPED = 0
    #: A defect of the engine.
    FAILED = 1
    #: The settings contradict each other.
    BAD_SETTINGS = 80
    #: No usable Java was found.
    JAVA_UNUSABLE = 81
    #: Java runs, but the Spark session did not start.
    SPARK_NOT_STARTED = 82
    #: The JVM of a running engine ended.
    SPARK_LOST = 83
    #: The herder has ended.
    ORPHANED = 84
    #: The JVM ran out of heap.
    HEAP_USED_UP = 85
    #: The JVM of a running engine was killed (SIGKILL).
    SPARK_KILLED = 86
    #: Code of a connector damaged the process, such as by closing the engine's connections.
    DAMAGED = 87
    #: A thread of the engine found no memory within the limit of its process.
    MEMORY_USED_UP = 88


#: A restart cannot succeed until an operator changes the machine or the settings.
LASTING_EXIT_CODES = frozenset({ExitCode.BAD_SETTINGS, ExitCode.JAVA_UNUSABLE})
