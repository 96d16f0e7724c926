"""What converters, transforms and predicates have in common: their settings."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from drover.config.config_def import ConfigDef


class Configurable(ABC):
    """A class that a config names; its settings have a prefix."""

    @classmethod
    @abstractmethod
    def config_def(cls) -> ConfigDef:
        """Its own settings."""

    @classmethod
    def config_def_for(cls, given: Mapping[str, str]) -> ConfigDef:
        """The settings, for a config that has ``given`` settings of it.

        A class that knows its settings only by what a config has returns these too.

        Args:
            given: The texts of its settings, without the prefix.

        Raises:
            ValueError: The class cannot be used; the message has the reason.
        """
        del given
        return cls.config_def()

    @classmethod
    def own_values(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parsed values of its settings, of all values behind its prefix."""
        return {key.name: values[key.name] for key in cls.config_def()}

    def belong_to(self, owner: str) -> None:  # noqa: B027 - most use no processes
        """Use processes of this task or preview only. Called before its first use, if at all."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what the object holds on the driver. Called when its task has ended."""


_USES_SYSTEMS: ContextVar[bool] = ContextVar("uses_systems", default=False)


def uses_systems() -> bool:
    """Whether a validation may call the systems that the config names."""
    return _USES_SYSTEMS.get()


@contextmanager
def using_systems(allowed: bool) -> Iterator[None]:
    """Let the validation in the block call the systems that its config names, or not."""
    token = _USES_SYSTEMS.set(allowed)
    try:
        yield
    finally:
        _USES_SYSTEMS.reset(token)
