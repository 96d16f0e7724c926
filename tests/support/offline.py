"""Connectors whose configs are checked without a look at servers."""

from collections.abc import Mapping, Sequence
from typing import Any

from drover.connector import Connector, Violation


def offline(kind: type[Connector]) -> type[Connector]:
    """The connector without its own checks across settings, which may look at servers."""

    def validate(cls: type[Connector], config: Mapping[str, Any]) -> Sequence[Violation]:
        del cls, config
        return ()

    return type(f"Offline{kind.__name__}", (kind,), {"validate": classmethod(validate)})
