"""What comes of a function on an executor: its rows, or the very error that it raised.

Spark hands an executor's error to the driver as text, which has to be guessed at. Here it is an
answer like any other, so the driver raises it again: of its class, with its causes, and with the
executor's trace as a note. (So Spark never repeats such a call: who runs it decides.)
"""

import gc
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ANSWER = "answer"
ANSWER_DDL = f"{ANSWER} binary"
#: An error and its causes, of which that many are looked at.
_CAUSES_MAX = 10
#: New objects before Python looks for cycles among them. Batches are lists of many objects without
#: any: looking after every 700, as it does by itself, took 1.4 of the 3.4 s of reading a million
#: messages.
_COLLECTION_OBJECTS = 500_000
#: Spark looks for cycles after every call, through all that the libraries of a connector made when
#: they were loaded: an eighth of what executors take where that is SQLAlchemy.
_FREEZES_MAX = 10
_SCHEMA = pa.schema([(ANSWER, pa.binary())])


class ExecutorError(Exception):
    """An error of an executor whose class cannot be sent; the message names it."""


class PassLostError(Exception):
    """A call on an executor did not answer: a process of Spark ended under it."""


@dataclass(frozen=True)
class Answering:
    """``function`` over its argument to the end, as one pickled answer; runs on executors."""

    function: Callable[[Any], Iterable[Any]]

    def __call__(self, argument: Any) -> Iterator[bytes]:
        """Yields the answer; raises nothing that is an Exception."""
        began_s = time.monotonic()
        _loaded_modules.pass_over(len(sys.modules))
        try:
            with _rare_collections():
                rows = [row for batch in self.function(argument) for row in _rows(batch)]
            answer = pickle.dumps((rows, [], time.monotonic() - began_s))
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver gets it
            answer = pickle.dumps(([], _packed(error), time.monotonic() - began_s))
        yield answer


class LoadedModules:
    """Has the collector pass over what there is when modules were loaded since it was asked last.

    Ask it before a call: Spark has looked for cycles after the one before, so there are none then.
    What is passed over is so for good, hence ``_FREEZES_MAX`` times at most.
    """

    def __init__(self, freeze: Callable[[], None] = gc.freeze) -> None:
        self._freeze = freeze
        self._count = 0
        self._freezes = 0

    def pass_over(self, count: int) -> None:
        """So many modules are loaded now."""
        if count > self._count and self._freezes < _FREEZES_MAX:
            self._count = count
            self._freezes += 1
            self._freeze()


_loaded_modules = LoadedModules()


def _rows(batch: Any) -> list[Any]:
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise TypeError(
            "a function on executors must yield Arrow record batches, not "
            f"{type(batch).__name__}: pa.RecordBatch.from_pylist makes one of dicts"
        )
    rows: list[Any] = batch.to_pylist()
    return rows


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTION_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True)
class AnsweringInArrow:
    """As Answering, for mapInArrow with ``ANSWER_DDL``."""

    function: Callable[[Iterator[Any]], Iterable[Any]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields one row."""
        for answer in Answering(self.function)(batches):
            yield pa.RecordBatch.from_pydict({ANSWER: [answer]}, schema=_SCHEMA)


def rows_of(answers: Iterable[bytes]) -> list[dict[str, Any]]:
    """The rows of all answers, in order.

    Raises:
        Exception: the first error among them.
    """
    return read_answers(answers)[0]


def read_answers(answers: Iterable[bytes]) -> tuple[list[dict[str, Any]], float]:
    """As ``rows_of``, and how many seconds the longest call took on its executor."""
    found: list[dict[str, Any]] = []
    longest_s = 0.0
    for answer in answers:
        rows, errors, seconds = pickle.loads(answer)
        if errors:
            raise _unpacked(errors)
        found += rows
        longest_s = max(longest_s, seconds)
    return found, longest_s


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, what caused that; a cycle ends."""
    each: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


def _packed(error: BaseException) -> list[tuple[bytes, str]]:
    """The error and its causes: each pickled (empty if that cannot be), and told in words."""
    error.add_note(f"on an executor:\n{''.join(traceback.format_exception(error))}".rstrip())
    return [(_pickled(each), _told(each)) for each in with_causes(error)]


def _pickled(error: BaseException) -> bytes:
    try:
        blob = pickle.dumps(error)
        return blob if type(pickle.loads(blob)) is type(error) else b""
    except Exception:  # noqa: BLE001 - code of whoever wrote the error
        return b""


def _told(error: BaseException) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        lines = [f"{kind}: {error}", *getattr(error, "__notes__", ())]
    except Exception:  # noqa: BLE001 - code of whoever wrote the error
        lines = [kind]
    return "\n".join(lines)


def _unpacked(errors: list[tuple[bytes, str]]) -> BaseException:
    """The error, its causes linked."""
    cause: BaseException | None = None
    for blob, told in reversed(errors):
        error = _read(blob, told)
        error.__cause__ = cause
        cause = error
    assert cause is not None
    return cause


def _read(blob: bytes, told: str) -> BaseException:
    try:
        error = pickle.loads(blob) if blob else None
    except Exception:  # noqa: BLE001 - a class that only executors have
        error = None
    return error if isinstance(error, BaseException) else ExecutorError(told)
