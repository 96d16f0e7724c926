"""Checks a connector's name and config before anything is written."""

import contextlib
from collections.abc import Awaitable, Callable, Collection

from drover.errors import DroverError, InvalidArgumentError, Reason, Violation
from drover.model.config import ConfigMap
from drover.model.names import connector_name_violations
from drover_worker.admin.masking import mask_violations
from drover_worker.core.config.checks import (
    CONFIG_MAX_BYTES,
    config_error,
    config_name_violations,
    config_size_bytes,
    connector_not_found,
)

#: Every fault the plugin finds in a config.
FindFaults = Callable[[ConfigMap], Awaitable[list[Violation]]]


def checked_name(name: str) -> str:
    """The name of a connector that may exist, trimmed.

    Raises:
        NotFoundError: CONNECTOR_NOT_FOUND, no connector can have it: no store takes it as a key.
    """
    trimmed = name.strip()
    if connector_name_violations(trimmed):
        raise connector_not_found(trimmed)
    return trimmed


def check_config_size(config: ConfigMap) -> None:
    """Refuse a config that is too large to be written.

    Raises:
        InvalidArgumentError: TOO_LARGE.
    """
    size_bytes = config_size_bytes(config)
    if size_bytes > CONFIG_MAX_BYTES:
        text = f"the config has {size_bytes} bytes: at most {CONFIG_MAX_BYTES} (1 MiB)"
        raise InvalidArgumentError(Reason.TOO_LARGE, text)


def check_patch(wanted: ConfigMap, removed: Collection[str]) -> None:
    """Refuse a change of settings that changes nothing or contradicts itself.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every fault; INVALID_CONFIG for a masked secret.
    """
    faults = [
        Violation(f"remove[{index}]", f"{setting!r} is in set, too: give it once")
        for index, setting in enumerate(removed)
        if setting in wanted
    ]
    if not wanted and not removed:
        faults.append(Violation("set", "give at least one setting to write or to remove"))
    if faults:
        raise InvalidArgumentError.listing(faults)


async def check_config(name: str, config: ConfigMap, find_faults: FindFaults) -> None:
    """Refuse a config whose faults are seen without its plugin.

    The plugin's own faults are in the same answer, if it can be asked now.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with every fault; TOO_LARGE.
    """
    check_config_size(config)
    found = [
        *connector_name_violations(name),
        *config_name_violations(name, config),
        *mask_violations(config),
    ]
    if found:
        with contextlib.suppress(DroverError):
            plugin_faults = await find_faults({**config, "name": name})
            # the faults of the name are told already
            found += [fault for fault in plugin_faults if fault.field != 'config["name"]']
        raise config_error(name, found)
