"""Answers of functions on executors: their rows, or the exception that they raised.

Spark passes an executor's exception to the driver as text. Here it is part of the answer, so the
driver raises it unchanged: with its class, its causes, and the executor's trace as a note. (Spark
therefore never repeats such a call; the caller decides about retries.)
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
#: The most causes of an error that are followed.
_CAUSES_MAX = 10
#: The first line of the note with an executor's trace.
_ON_EXECUTOR = "on an executor:\n"
#: How many new objects trigger Python's garbage collector. Batches are lists of many objects
#: without cycles: the default of 700 took 1.4 of the 3.4 s of reading a million messages.
_COLLECTION_OBJECTS = 500_000
#: Spark runs the garbage collector after every call, through all objects of the imported libraries:
#: an eighth of the executors' time with SQLAlchemy.
_FREEZES_MAX = 10
_SCHEMA = pa.schema([(ANSWER, pa.binary())])


class ExecutorError(Exception):
    """An error of an executor that cannot be pickled; the message has its class."""


class PassLostError(Exception):
    """A call on an executor has no answer, because a Spark process ended."""


class ExecutorFilesError(PassLostError):
    """A call on an executor did not run, because the executor cannot use its files: its disk is
    full, or its folder was removed.
    """


class AnswerTooLargeError(Exception):
    """The rows of a call do not fit into the driver; the message has the remedy."""


@dataclass(frozen=True)
class Answering:
    """Runs ``function`` on its argument to the end, with one pickled answer; on executors."""

    function: Callable[[Any], Iterable[Any]]

    def __call__(self, argument: Any) -> Iterator[bytes]:
        """Yield the answer; never raises an Exception."""
        began_s = time.monotonic()
        _loaded_modules.pass_over(len(sys.modules))
        try:
            with _rare_collections():
                rows = [row for batch in self.function(argument) for row in _rows(batch)]
            answer = pickle.dumps((rows, [], time.monotonic() - began_s))
        except Exception as error:  # noqa: BLE001 - every error is sent to the driver
            answer = pickle.dumps(([], _packed(error), time.monotonic() - began_s))
        yield answer


@dataclass(frozen=True)
class AnsweringEach:
    """As Answering, with an answer for each batch, so that no process holds all of them."""

    function: Callable[[Any], Iterable[Any]]

    def __call__(self, argument: Any) -> Iterator[bytes]:
        """Yield the answers; one with an error is the last. Never raises an Exception."""
        began_s = time.monotonic()
        _loaded_modules.pass_over(len(sys.modules))
        try:
            with _rare_collections():
                for batch in self.function(argument):
                    yield pickle.dumps((_rows(batch), [], time.monotonic() - began_s))
        except Exception as error:  # noqa: BLE001 - noqa: BLE001 - every error is sent to the driver
            yield pickle.dumps(([], _packed(error), time.monotonic() - began_s))


class LoadedModules:
    """Freezes the objects of newly imported modules, so that the garbage collector skips them.

    Call it before a call's work: the collector has just run, so there are no cycles. Frozen objects
    are never collected, hence at most ``_FREEZES_MAX`` times.
    """

    def __init__(self, freeze: Callable[[], None] = gc.freeze) -> None:
        self._freeze = freeze
        self._count = 0
        self._freezes = 0

    def pass_over(self, count: int) -> None:
        """Freeze if more than before, ``count`` modules, are imported now."""
        if count > self._count and self._freezes < _FREEZES_MAX:
            self._count = count
            self._freezes += 1
            self._freeze()


_loaded_modules = LoadedModules()


def _rows(batch: Any) -> list[Any]:
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise TypeError(
            "a function on executors must yield Arrow record batches, not "
            f"{type(batch).__name__}: use pa.RecordBatch.from_pylist for dicts"
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
        """Yield one row."""
        return _in_arrow(Answering(self.function)(batches))


@dataclass(frozen=True)
class AnsweringEachInArrow:
    """As AnsweringEach, for mapInArrow with ``ANSWER_DDL``."""

    function: Callable[[Iterator[Any]], Iterable[Any]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a row for each answer."""
        return _in_arrow(AnsweringEach(self.function)(batches))


def _in_arrow(answers: Iterable[bytes]) -> Iterator[Any]:
    for answer in answers:
        yield pa.RecordBatch.from_pydict({ANSWER: [answer]}, schema=_SCHEMA)


def rows_of(answers: Iterable[bytes]) -> list[dict[str, Any]]:
    """The rows of all answers, in order.

    Raises:
        Exception: The first error among them.
    """
    return read_answers(answers)[0]


def read_answers(answers: Iterable[bytes]) -> tuple[list[dict[str, Any]], float]:
    """As ``rows_of``, with the duration in seconds of the longest call on its executor."""
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
    """The error and its chain of causes, as a traceback shows it; stops at a cycle.

    ``raise … from None`` ends the chain: such an error leaves out a cause with values or secrets.
    """
    each: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def trace_on_executor(error: BaseException) -> str | None:
    """The traceback of an error that an executor raised; None for other errors."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, str) and note.startswith(_ON_EXECUTOR):
            return note
    return None


def _packed(error: BaseException) -> list[tuple[bytes, str]]:
    """The error and its causes: each pickled (empty if impossible), and as text."""
    error.add_note(f"{_ON_EXECUTOR}{''.join(traceback.format_exception(error))}".rstrip())
    return [(_pickled(each), _told(each)) for each in with_causes(error)]


def _pickled(error: BaseException) -> bytes:
    try:
        blob = pickle.dumps(error)
        return blob if type(pickle.loads(blob)) is type(error) else b""
    except Exception:  # noqa: BLE001 - noqa: BLE001 - the exception's own code
        return b""


def _told(error: BaseException) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        lines = [f"{kind}: {error}", *getattr(error, "__notes__", ())]
    except Exception:  # noqa: BLE001 - noqa: BLE001 - the exception's own code
        lines = [kind]
    return "\n".join(lines)


def _unpacked(errors: list[tuple[bytes, str]]) -> BaseException:
    """The error with its causes linked."""
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
    except Exception:  # noqa: BLE001 - noqa: BLE001 - the class exists only on executors
        error = None
    return error if isinstance(error, BaseException) else ExecutorError(told)
