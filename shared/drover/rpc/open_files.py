"""The process's limit of open files, and the number of client connections within it."""

import resource

#: More than a service needs. Bounds the number of connections, since some systems allow a billion
#: open files.
OPEN_FILES_MAX = 32_768


def raise_open_files() -> None:
    """Raise the soft limit, often 1,024, to the hard limit, but to at most ``OPEN_FILES_MAX``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def connections_max(share_percent: int) -> int:
    """The maximum number of client connections, as a share of the process's open files.

    The process needs the rest for its own calls, logs and files.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usable = OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft
    return max(usable * share_percent // 100, 1)
