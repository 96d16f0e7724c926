"""The progress of one run of a task, for reports to the herder."""

import threading
import time
from collections.abc import Iterable, Mapping
from itertools import islice

from drover.api.common.v1 import activity_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.common import encode_figures, encode_task_id
from drover.model.ids import TaskId
from drover.pipeline import PassReport
from drover.pipeline.report import total
from drover_worker.engine.tasks.record_path import encode_counts
from drover_worker.engine.tasks.task_times import TaskTimes

#: Limits for topics in one progress report, and for topics waiting for later reports. A topic
#: over the limit is reported when further records of it move.
_REPORT_TOPICS_MAX = 1_000
_WAITING_TOPICS_MAX = 10_000


class RunProgress:
    """Counts batches on the task's thread; another thread makes the reports.

    Attributes:
        batch_count: The number of committed batches.
    """

    def __init__(self, times: TaskTimes) -> None:
        self._times = times
        self._lock = threading.Lock()
        self._counts = PassReport()
        self.batch_count = 0
        self._last_batch_ms = 0
        #: Topics with moved records that are not reported yet; oldest first.
        self._moved_topics: dict[str, None] = {}
        #: Batches, retries, figures and activity in the last report.
        self._reported: tuple[object, ...] = (0, 0, {}, None)

    def moved(
        self, report: PassReport, started_s: float, topics: Iterable[str], size_bytes: int
    ) -> None:
        """Account for a committed batch with records of these topics."""
        with self._lock:
            self._counts = total((self._counts, report))
            self.batch_count += 1
            for topic in topics if report.read_count else ():
                if len(self._moved_topics) < _WAITING_TOPICS_MAX:
                    self._moved_topics[topic] = None
            duration_s = time.monotonic() - started_s
            self._last_batch_ms = round(duration_s * 1000)
            self._times.batches.add(duration_s)
            self._times.size_bytes += size_bytes

    def report(
        self,
        task: TaskId,
        run_id: int,
        figures: Mapping[str, int],
        activity: activity_pb2.TaskActivity,
    ) -> engine_pb2.TaskProgress.Entry | None:
        """The progress; None if nothing changed since the last report."""
        with self._lock:
            present = (self.batch_count, self._times.retry_count, figures, activity)
            if present == self._reported and not self._moved_topics:
                return None
            self._reported = present
            topics = list(islice(self._moved_topics, _REPORT_TOPICS_MAX))
            for topic in topics:
                del self._moved_topics[topic]
            entry = engine_pb2.TaskProgress.Entry(
                task=encode_task_id(task),
                run_id=run_id,
                record_count=self._counts.written_count,
                counts=encode_counts(self._counts),
                batch_count=self.batch_count,
                last_batch_ms=self._last_batch_ms,
                topics=sorted(topics),
                figures=encode_figures(figures),
                activity=activity,
            )
            self._times.fill(entry)
            return entry
