"""Batches that are made while those before them are written."""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any


class ComingBatches:
    """Takes batches on a thread of its own, from when it is entered on.

    Reading and decoding records is work for this process, writing them for the database: one after
    the other each would wait for the other. What waits here is a batch of a task at most, whose
    bytes are bounded.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)
        self._changed = threading.Condition()
        self._came: list[Any] = []
        self._ended = False
        self._error: BaseException | None = None
        #: Nobody takes any more.
        self._left = False
        self._thread = threading.Thread(target=self._run, name="coming batches", daemon=True)

    def __enter__(self) -> "ComingBatches":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left = True
        self._thread.join()

    def take(self, *, waits: bool) -> list[Any] | None:
        """All that came since the last time, of which there may be none unless it ``waits`` for
        some; None when there are no more.

        Raises:
            BaseException: what making the batches raised.
        """
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._came or self._ended)
            found, self._came = self._came, []
            if found or not self._ended:
                return found
        if self._error is not None:
            raise self._error
        return None

    def _run(self) -> None:
        try:
            for batch in self._batches:
                if self._left:
                    break
                with self._changed:
                    self._came.append(batch)
                    self._changed.notify()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever takes the batches
            self._error = error
        finally:
            # a generator ends on the thread that it ran on
            getattr(self._batches, "close", lambda: None)()
            with self._changed:
                self._ended = True
                self._changed.notify()
