"""Validates a connector's name and config before a write."""

import contextlib
from collections.abc import Awaitable, Callable, Collection

from drover.errors import DroverError, InvalidArgumentError, Reason, Violation
from drover.model.config import ConfigMap
from drover.model.names import connector_name_violations, existing_name_violations
from drover_worker.admin.masking import mask_violations
from drover_worker.core.config.checks import (
    CONFIG_MAX_BYTES,
    config_error,
    config_name_violations,
    config_size_bytes,
    connector_not_found,
)

#: Returns every violation that the plugin finds in a config of a caller.
FindFaults = Callable[[ConfigMap, str], Awaitable[list[Violation]]]


def checked_name(name: str) -> str:
    """The name of a connector that may exist, without the white space that the client sent.

    Raises:
        NotFoundError: CONNECTOR_NOT_FOUND, the name is invalid, so no connector can have it.
    """
    if existing_name_violations(name):
        raise connector_not_found(name)
    return name


def check_config_size(config: ConfigMap) -> None:
    """Reject a config that is too large to be written.

    Raises:
        InvalidArgumentError: TOO_LARGE.
    """
    size_bytes = config_size_bytes(config)
    if size_bytes > CONFIG_MAX_BYTES:
        text = f"the config has {size_bytes} bytes; the maximum is {CONFIG_MAX_BYTES} (1 MiB)"
        raise InvalidArgumentError(Reason.TOO_LARGE, text)


def check_patch(changed: ConfigMap, removed: Collection[str]) -> None:
    """Reject a patch that is empty or contradicts itself.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    faults = [
        Violation(f"remove[{index}]", f"{setting!r} is in set too: list it in one of them")
        for index, setting in enumerate(removed)
        if setting in changed
    ]
    if not changed and not removed:
        faults.append(Violation("set", "must have at least one setting if remove has none"))
    if faults:
        raise InvalidArgumentError.listing(faults)


async def check_config(name: str, config: ConfigMap, find_faults: FindFaults, caller: str) -> None:
    """Reject a config with violations of the rules that do not need its plugin.

    The error lists the plugin's violations too, if the engine is available.

    Raises:
        InvalidArgumentError: INVALID_CONFIG with every violation; TOO_LARGE.
    """
    check_config_size(config)
    violations = [
        *connector_name_violations(name),
        *config_name_violations(name, config),
        *mask_violations(config),
    ]
    if violations:
        with contextlib.suppress(DroverError):
            plugin_faults = await find_faults({**config, "name": name}, caller)
            # the list has the violations of the name already
            violations += [fault for fault in plugin_faults if fault.field != 'config["name"]']
        raise config_error(name, violations)
