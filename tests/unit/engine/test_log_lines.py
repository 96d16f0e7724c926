"""Lines of other writers in the engine's log output."""

import io
import json

import pytest

from drover_worker.engine.log_lines import WithoutLostPipes, as_logged

NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
EVENT = b'{"event": "a task ended", "level": "info"}\n'


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"a print of a plugin\n", "a print of a plugin"),
        (b"    at java.base/java.lang.Thread.run\n", "    at java.base/java.lang.Thread.run"),
        (b"no end of line", "no end of line"),
        (b"bad bytes \xff\n", "bad bytes �"),
        (b'{"cut": "in the mid', '{"cut": "in the mid'),
        (b'{"a": "dict of a plugin"}\n', '{"a": "dict of a plugin"}'),
        (b"{1, 2}\n", "{1, 2}"),
    ],
)
def test_where_events_are_asked_for_other_lines_become_events(line: bytes, event: str) -> None:
    logged = as_logged(line, "json")
    assert logged.endswith(b"\n")
    made = json.loads(logged)
    assert made.pop("timestamp").endswith("Z")
    assert made == {"event": event, "level": "info", "logger": "stderr", "service": "engine"}


def test_events_stay_as_they_are() -> None:
    assert as_logged(EVENT, "json") == EVENT


@pytest.mark.parametrize("line", [b"a print\n", b"\n", b"no end", EVENT])
def test_text_stays_as_it_is(line: bytes) -> None:
    assert as_logged(line, "text") == line


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_what_java_says_on_every_start_is_left_out(log_format: str) -> None:
    assert as_logged(NOISE, log_format) == b""


def test_an_empty_line_is_no_event() -> None:
    assert as_logged(b"\n", "json") == b""


def lost_pipe(error: str) -> str:
    return (
        "PySpark daemon failed to flush the output to the worker process:\n"
        f'Traceback (most recent call last):\n  File "daemon.py", line 95, in worker\n{error}\n'
    )


def test_an_idle_python_worker_that_spark_ends_leaves_no_trace() -> None:
    written = io.BytesIO()
    stream = WithoutLostPipes(written, encoding="utf-8", line_buffering=True)
    print("before", file=stream)
    print(lost_pipe("BrokenPipeError: [Errno 32] Broken pipe"), file=stream)
    print(lost_pipe("ConnectionResetError: [Errno 104] Connection reset by peer"), file=stream)
    print("", file=stream)
    print("after", file=stream)
    assert written.getvalue() == b"before\n\nafter\n"


def test_another_reason_why_output_is_lost_is_logged() -> None:
    written = io.BytesIO()
    stream = WithoutLostPipes(written, encoding="utf-8", line_buffering=True)
    print(lost_pipe("MemoryError"), file=stream)
    assert b"MemoryError" in written.getvalue()
