"""What status, describe, list and doctor show of tasks at work; the texts are in operating.md."""

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.doctor.cluster import connector_findings
from drover.cli.doctor.finding import Level
from drover.cli.output.activities import activity_notes
from drover.cli.output.connectors import status_document
from drover.codec.common import encode_timestamp
from tests.support import terminal_texts
from tests.support.terminal_texts import NOW_MS, situations, terminal_text


def test_a_retry_is_visible_while_the_state_stays_running() -> None:
    text = terminal_text("an API is down")
    assert "RUNNING" in text
    assert "retrying: GET https://api.example.com/tickets: connection refused" in text
    assert "retries poll(): it failed 7 times since 2026-11-28T03:27:50+00:00" in text
    assert "tries again in 19 s" in text


def test_the_list_shows_which_connectors_retry() -> None:
    text = terminal_text("a table is locked")
    assert text.count("1 RUNNING (1 retrying)") == 2
    assert text.count("1 RUNNING ") == 3


def test_doctor_names_each_operation_that_is_retried() -> None:
    text = terminal_text("operations are retried")
    assert "task 0 of tickets retries poll()" in text
    assert "task 0 of shop-copy retries write()" in text
    assert "memory: engine 1.6 GiB, JVM 610 MiB, 5 Python workers 284 MiB" in text


def test_a_hang_shows_its_duration_and_the_calls_in_which_it_is() -> None:
    text = terminal_text("a plugin hangs")
    assert "polling 40 s" in text
    assert "in fetch: return self._socket.recv(65536)" in text


def test_a_task_that_failed_and_runs_again_names_the_failure() -> None:
    text = terminal_text("a plugin hangs")
    assert "failed once, last 95 s ago; runs again" in text


def test_a_paused_sink_shows_its_lag() -> None:
    assert "people-db: sink, PAUSED, lag 999" in terminal_text("a sink is paused")


def test_a_snapshot_shows_table_rows_and_estimate() -> None:
    text = terminal_text("a snapshot is in progress")
    assert "reads table public.orders: 48000 of about 60000 rows; 2 more tables to read" in text


@pytest.mark.parametrize("situation", situations())
def test_no_text_is_wider_than_a_page(situation: str) -> None:
    text = terminal_text(situation)
    assert text.startswith("```text\n$ drover ")
    assert "\x1b" not in text


def test_documents_have_the_activity() -> None:
    document = status_document(terminal_texts._hang())
    (task,) = document["tasks"]
    assert task["activity"]["step"] == "POLLING"
    assert len(task["activity"]["stack"]) == 2
    assert task["records_per_second"] == 0
    document = status_document(terminal_texts._snapshot())
    assert document["tasks"][0]["activity"]["snapshot"] == {
        "table": "public.orders",
        "row_count": 48_000,
        "remaining_table_count": 3,
        "estimated_row_count": 60_000,
    }
    document = status_document(terminal_texts._retrying_write())
    assert (document["lag"], document["tasks"][0]["lag"]) == (49, 49)
    assert document["tasks"][0]["activity"]["retry"]["failure_count"] == 3


def test_doctor_warns_of_a_step_that_takes_long() -> None:
    status = terminal_texts._hang()
    status.tasks[0].ClearField("failures")
    (finding,) = connector_findings([status], now_ms=NOW_MS)
    assert finding.level is Level.WARNING
    assert finding.found == "task 0 of tickets has been polling 40 s"
    assert "drover connector describe tickets" in finding.advice
    status.tasks[0].activity.step_time.CopyFrom(encode_timestamp(NOW_MS - 29_000))
    (finding,) = connector_findings([status], now_ms=NOW_MS)
    assert finding.level is Level.OK


def test_status_and_doctor_name_a_connector_whose_code_changed_the_process() -> None:
    status = terminal_texts._healthy()
    note = "its code changed sys.path in the engine's process"
    status.tasks[0].activity.process_change = note
    assert [*activity_notes(status, now_ms=NOW_MS)] == [f"task 0 {note}"]
    assert status_document(status)["tasks"][0]["activity"]["process_change"] == note
    (finding,) = connector_findings([status], now_ms=NOW_MS)
    assert (finding.level, finding.found) == (Level.WARNING, f"{status.name}: {note}")
    assert "engine=own" in finding.advice


def test_doctor_warns_of_a_task_that_failed_and_runs_again() -> None:
    status = terminal_texts._hang()
    status.tasks[0].ClearField("activity")
    (finding,) = connector_findings([status], now_ms=NOW_MS)
    assert finding.level is Level.WARNING
    assert finding.found == "tickets: task 0 failed once, last 95 s ago; runs again"
    (finding,) = connector_findings([status], now_ms=NOW_MS + 600_000)
    assert finding.level is Level.OK


def test_doctor_lists_at_most_ten_tasks_of_a_kind() -> None:
    statuses = []
    for number in range(14):
        status = pb.ConnectorStatus()
        status.CopyFrom(terminal_texts._hang())
        status.tasks[0].ClearField("failures")
        status.name = f"c{number}"
        statuses.append(status)
    findings = connector_findings(statuses, now_ms=NOW_MS)
    assert len(findings) == 11
    assert findings[-1].found.startswith("4 more tasks")
