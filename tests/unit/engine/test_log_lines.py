"""Lines of other writers in the engine's log output."""

import json

import pytest

from drover_worker.engine.log_lines import as_logged

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
