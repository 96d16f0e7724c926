"""Prepares batches on a thread while earlier ones are written."""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any


class ComingBatches:
    """Iterates batches on a separate thread while the context is entered.

    Reading and decoding uses this process, writing uses the database; in sequence each would wait
    for the other. At most one batch of a task is held, whose size is limited.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)
        self._changed = threading.Condition()
        self._came: list[Any] = []
        self._ended = False
        self._error: BaseException | None = None
        #: The consumer has left.
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
        """The batches since the last call; may be empty unless ``waits``. None at the end.

        Raises:
            BaseException: The error that the iteration raised.
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
        except BaseException as error:  # noqa: BLE001 - noqa: BLE001 - raised again in take()
            self._error = error
        finally:
            # close the generator on the thread that ran it
            getattr(self._batches, "close", lambda: None)()
            with self._changed:
                self._ended = True
                self._changed.notify()
