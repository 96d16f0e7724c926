"""The errors of calls on executors that have no answer."""

import pytest

from drover.dataplane.answers import AnswerTooLargeError, ExecutorFilesError, PassLostError
from drover.dataplane.arrow_rows import lost_pass

SPARK = """\
An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 \
times, most recent failure: Lost task 0.3 in stage 9.0 (TID 14) (node-7 executor 1): {}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)
"""


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("java.nio.file.NoSuchFileException: /disk/blockmgr-e68a/3a", ExecutorFilesError),
        ("java.io.FileNotFoundException: /disk/3a (Too many open files)", ExecutorFilesError),
        ("java.io.IOException: No space left on device", ExecutorFilesError),
        ('java.io.IOException: Cannot run program "drover/bin/python"', ExecutorFilesError),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly", PassLostError),
        ("ExecutorLostFailure (executor 1 exited caused by one of the tasks)", PassLostError),
        ("java.net.SocketException: Connection reset", PassLostError),
        ("java.io.IOException: Broken pipe", PassLostError),
        ("serialized results are bigger than spark.driver.maxResultSize", AnswerTooLargeError),
    ],
)
def test_the_reason_decides_whose_fault_it_is(reason: str, expected: type[Exception]) -> None:
    error = lost_pass(SPARK.format(reason))
    assert type(error) is expected
    assert reason in str(error)


def test_a_file_that_a_function_misses_is_not_the_executors_fault() -> None:
    reason = "org.apache.spark.SparkException: java.nio.file.NoSuchFileException: /data/a"
    assert type(lost_pass(SPARK.format(reason))) is PassLostError
