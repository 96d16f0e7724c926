"""Runs several Spark jobs of one task at once."""

import sys
import threading
from collections.abc import Callable, Sequence


def run_on_threads(
    numbers: Sequence[int], run: Callable[[int], float], *, thread_count: int
) -> float:
    """Call ``run`` with each number, on up to ``thread_count`` threads in this thread's job group
    and pool; returns its highest result.

    Raises:
        Exception: Of the lowest number that failed, after all running calls have ended.
    """
    if len(numbers) <= 1:
        return max((run(number) for number in numbers), default=0.0)
    # this package does not import pyspark, which has run before
    pyspark = sys.modules["pyspark"]
    lock = threading.Lock()
    waiting = iter(numbers)
    errors: dict[int, BaseException] = {}
    results: list[float] = []

    def work() -> None:
        while True:
            with lock:
                number = None if errors else next(waiting, None)
            if number is None:
                return
            try:
                results.append(run(number))
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors[number] = error

    count = min(thread_count, len(numbers))
    threads = [pyspark.InheritableThread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return max(results)
