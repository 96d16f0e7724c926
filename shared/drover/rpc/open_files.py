"""How many files a process may have open, and how many of them are its clients' connections."""

import resource

#: More than a service has a use for, and a bound for what connections take; some systems allow a
#: billion.
OPEN_FILES_MAX = 32_768


def raise_open_files() -> None:
    """Use what the system allows this process at most: often it begins with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(share_percent: int) -> int:
    """How many connections a server takes that may use this share of the process's open files.

    The rest is for its own: its calls of others, logs, files.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usable = OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft
    return max(usable * share_percent // 100, 1)
