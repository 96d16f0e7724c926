"""The difference between two configs."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.model.config import ConfigMap


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """The names of the settings that were added, removed and changed."""

    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @classmethod
    def between(cls, before: ConfigMap, after: ConfigMap) -> "ConfigDifference":
        """The difference from ``before`` to ``after``."""
        return cls(
            added=sorted(after.keys() - before.keys()),
            removed=sorted(before.keys() - after.keys()),
            changed=sorted(k for k in after.keys() & before.keys() if after[k] != before[k]),
        )
