"""Connectors whose configs are validated without calls to servers."""

from collections.abc import Mapping, Sequence
from typing import Any

from drover.connector import Connector, Violation


def offline(kind: type[Connector]) -> type[Connector]:
    """The connector without its cross-setting checks, which may call servers."""

    def validate(cls: type[Connector], config: Mapping[str, Any]) -> Sequence[Violation]:
        del cls, config
        return ()

    return type(f"Offline{kind.__name__}", (kind,), {"validate": classmethod(validate)})
