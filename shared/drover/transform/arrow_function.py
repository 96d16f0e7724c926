"""ArrowFunction: calls a Python function as a transform."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.plugin_modules import load_plugin, plugin_fault
from drover.config.validators import Check, InRange
from drover.record import RECORD_COLUMNS, PassError, RecordError
from drover.transform.bounded import OverdueError, call_within
from drover.transform.key_or_value import text_key
from drover.transform.transform import Transform

#: The entry-point group of functions.
GROUP = "drover.functions"


class ArrowFunction(Transform):
    """Calls a function with each record batch (see drover.record); it returns one or several."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return ConfigDef(
            text_key(
                "function",
                validator=Check(_fault),
                documentation="The name of an entry point of drover.functions, or its import path, "
                "package.module:name, below the worker's DROVER_PLUGIN_MODULES.",
            ),
            ConfigKey(
                "timeout.ms",
                ConfigType.INT,
                default=300_000,
                validator=InRange(1),
                documentation="How long a batch may take; after that the task fails.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._path: str = config["function"].strip()
        self._function = _import(self._path)
        self._timeout_ms: int = config["timeout.ms"]

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled by its path, because pickle may not find the function by its name
        return type(self), (self.config,)

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform.

        Raises:
            PassError: The function did not return within timeout.ms.
        """
        try:
            batches = call_within(self._timeout_ms / 1000, lambda: self._call(batch))
        except (RecordError, PassError):
            raise
        except OverdueError:
            raise PassError(
                f"the function {self._path} did not return within {self._timeout_ms} ms "
                "(timeout.ms)"
            ) from None
        except Exception as error:
            raise RecordError(
                f"the function {self._path} raised {type(error).__name__}: {error}"
            ) from error
        for each in batches:
            self._check(each)
        return batches

    def _call(self, batch: pa.RecordBatch) -> list[Any]:
        result = self._function(batch)
        return [result] if isinstance(result, pa.RecordBatch) else list(result)

    def _check(self, result: object) -> None:
        if not isinstance(result, pa.RecordBatch):
            raise RecordError(
                f"the function {self._path} must return record batches, not {type(result).__name__}"
            )
        missing = [name for name in RECORD_COLUMNS if name not in result.schema.names]
        if missing:
            raise RecordError(
                f"the function {self._path} returned a batch without the columns"
                f" {', '.join(missing)}: it must keep them"
            )


def _import(path: str) -> Callable[[pa.RecordBatch], Any]:
    """Import the function.

    Raises:
        ValueError: The path does not name a callable.
    """
    found = load_plugin(GROUP, path)
    if not callable(found):
        raise ValueError(f"must name a function, not a {type(found).__name__}")
    function: Callable[[pa.RecordBatch], Any] = found
    return function


def _fault(path: str) -> str | None:
    fault = plugin_fault(GROUP, path)
    if fault is not None:
        return fault
    try:
        _import(path)
    except ValueError as error:
        return str(error)
    return None
