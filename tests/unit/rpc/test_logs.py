import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from drover.rpc.logs import configure_logging, current_request_id, log_context


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_one_json_object_a_line_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("worker", "INFO", "json")
    with log_context(connector="flights", task="flights-0", request_id="r1"):
        assert current_request_id() == "r1"
        structlog.get_logger("here").info("started", rows=3)
    structlog.get_logger("here").info("after")
    assert current_request_id() == ""
    first, second = events(capsys)
    assert first["event"] == "started"
    assert first["service"] == "worker"
    assert first["level"] == "info"
    assert (first["connector"], first["task"], first["request_id"]) == (
        "flights",
        "flights-0",
        "r1",
    )
    assert first["rows"] == 3
    assert "timestamp" in first
    assert "connector" not in second


def test_the_standard_library_logs_there_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("worker", "INFO", "json")
    with log_context(task="flights-0"):
        logging.getLogger("some.library").warning("disk at %d %%", 93)
    (event,) = events(capsys)
    assert event["event"] == "disk at 93 %"
    assert event["task"] == "flights-0"


def test_below_the_level_nothing_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("worker", "WARNING", "json")
    structlog.get_logger("here").info("quiet")
    logging.getLogger("here").info("quiet")
    assert capsys.readouterr().err == ""


def test_secrets_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("worker", "INFO", "json")
    structlog.get_logger("here").info(
        "connecting",
        db_password="s3cret",
        config={"url": "jdbc:x", "ssl.keystore.password": "s3cret", "nested": {"token": "s3cret"}},
        next_page_token="p2",
    )
    text = capsys.readouterr().err
    assert "s3cret" not in text
    assert "jdbc:x" in text
    assert "p2" in text


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_trace_shows_no_local_variables(
    capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    configure_logging("worker", "INFO", "json" if log_format == "json" else "text")

    def fail() -> None:
        password = "-".join(["s3", "cret"])
        raise ValueError(len(password))

    try:
        fail()
    except ValueError:
        structlog.get_logger("here").exception("failed")
    text = capsys.readouterr().err
    assert "ValueError" in text
    assert "s3-cret" not in text


def test_values_that_json_does_not_know_do_not_break_a_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("worker", "INFO", "json")
    structlog.get_logger("here").info("odd", value=object(), raw=b"\xff")
    (event,) = events(capsys)
    assert event["event"] == "odd"
