"""What the page of a connector shows, from statuses and histories; pure."""

import json

import yaml

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.failures import encode_failures
from drover.model.failures import Failure, FailureCause, FailureHistory
from drover_gateway.console.connector_config_page import (
    SETTINGS_MAX,
    config_html,
    grouped,
    json_of,
    yaml_of,
)
from drover_gateway.console.connector_history_page import CHANGES_MAX, history_html
from drover_gateway.console.connector_page import (
    TASKS_MAX,
    TOPICS_MAX,
    Seen,
    live_parts,
    removed_parts,
    topics_html,
)
from drover_gateway.console.frame import Visit
from drover_gateway.console.sessions import Sessions

RUNNING, FAILED = pb.RUN_STATE_RUNNING, pb.RUN_STATE_FAILED
NOW_MS = 1_700_000_000_000
SESSIONS = Sessions()
VISIT = Visit(SESSIONS.new("", 0), SESSIONS, "system", "/ui/")
SCRIPT = "<script>alert(1)</script>"


def seen(*tasks: pb.TaskState, trace: str = "", fault: str = "") -> Seen:
    own = pb.ConnectorState(state=FAILED if trace else RUNNING, worker_id="w:1", trace=trace)
    status = pb.ConnectorStatus(name="c", connector=own, tasks=tasks)
    return Seen(status, pb.Connector(name="c"), fault)


def shown(page: Seen) -> str:
    return "".join(live_parts(page, NOW_MS).values())


def test_a_failed_connector_object_has_its_cause_and_its_trace() -> None:
    trace = "Traceback (most recent call last):\n  File x\nOSError: no such host\n"
    html = shown(seen(trace=trace))
    assert "The connector" in html
    assert '<bdi class="bad">OSError: no such host</bdi>' in html
    assert "Trace of the connector" in html
    assert "is-failed" in html


def test_the_cause_is_shown_to_its_end_where_it_says_what_to_do() -> None:
    cause = f"record {'x' * 300} failed (errors.tolerance=all skips such records)"
    failure = Failure(NOW_MS, FailureCause.PLUGIN, "w:1", f"{cause[:199]}…")
    failures = encode_failures(FailureHistory(1, (failure,), count=1))
    task = pb.TaskState(state=FAILED, trace=cause, failures=failures)
    parts = live_parts(seen(task), NOW_MS)
    assert f'<bdi class="bad">{cause}</bdi>' in parts["c-failure"]
    task.trace = "another failure"
    assert "…</bdi>" in live_parts(seen(task), NOW_MS)["c-failure"]


def test_a_running_connector_with_a_failed_task_is_shown_as_failed() -> None:
    parts = live_parts(seen(pb.TaskState(state=RUNNING), pb.TaskState(task=1, state=FAILED)), 0)
    assert "is-failed" in parts["c-state"]
    assert "no cause was reported" in parts["c-failure"]


def test_failed_tasks_are_shown_even_if_there_are_thousands() -> None:
    tasks = [pb.TaskState(task=at, state=RUNNING) for at in range(3_000)]
    tasks[2_999].state = FAILED
    parts = live_parts(seen(*tasks), NOW_MS)
    assert parts["c-tasks"].count("<tr>") == TASKS_MAX + 1
    assert parts["c-tasks"].index('<th scope="row">2999<') < parts["c-tasks"].index(">0</th>")
    assert "2,900 more tasks are left out" in parts["c-tasks"]
    assert "Task 2999" in parts["c-failure"]


def test_a_long_trace_is_cut_at_its_beginning() -> None:
    html = shown(seen(pb.TaskState(state=FAILED, trace="x" * 1_000_000 + "\nthe cause\n")))
    assert len(html) < 30_000
    assert "characters are left out" in html
    assert html.rstrip().count("the cause") >= 1


def test_a_retry_has_its_next_attempt_or_is_tried_now() -> None:
    task = pb.TaskState(state=RUNNING)
    retry = task.activity.retry
    retry.operation, retry.failure_count, retry.message = "poll()", 1, SCRIPT
    retry.begin_time.FromMilliseconds(NOW_MS - 5_000)
    retry.next_attempt_time.FromMilliseconds(NOW_MS + 5_000)
    html = shown(seen(task))
    assert "which failed once since" in html
    assert "next attempt <time" in html
    assert "<script" not in html
    retry.next_attempt_time.FromMilliseconds(NOW_MS - 1)
    assert "next attempt now" in shown(seen(task))


def test_a_snapshot_and_a_long_step_are_shown() -> None:
    task = pb.TaskState(task=4, state=RUNNING)
    snapshot = task.activity.snapshot
    snapshot.table, snapshot.row_count, snapshot.remaining_table_count = SCRIPT, 1_000, 3
    snapshot.estimated_row_count = 5_000
    task.activity.stack = f"acme.poll\n{SCRIPT}"
    html = shown(seen(task))
    assert "1,000 of about 5,000 rows; 3 tables left" in html
    assert "Where the present step is" in html
    assert "<script" not in html


def test_without_an_answer_of_the_workers_the_last_state_stays() -> None:
    html = shown(seen(pb.TaskState(state=RUNNING), fault=f"no worker answers {SCRIPT}"))
    assert "What tasks do is not known: no worker answers" in html
    assert "<script" not in html


def test_the_parts_after_a_deletion_are_the_same_parts() -> None:
    assert removed_parts(SCRIPT).keys() >= live_parts(seen(), NOW_MS).keys()
    assert "<script" not in "".join(removed_parts(SCRIPT).values())


def test_topics_are_cut_with_their_number() -> None:
    html = topics_html("c", [f"t{at}" for at in range(TOPICS_MAX + 5)])
    assert html.count("<li>") == TOPICS_MAX
    assert "5 more topics are left out" in html


def test_settings_are_in_the_groups_and_the_order_of_the_plugin() -> None:
    keys = [
        pb.ConfigKey(name="tasks.max", common=True, group="Common"),
        pb.ConfigKey(name="url", group="Connection", order=2),
        pb.ConfigKey(name="host", group="Connection", order=1),
        pb.ConfigKey(name="unset", group="Connection", order=3, default_value="d"),
    ]
    config = {"url": "u", "tasks.max": "1", "host": "h", "transforms.a.type": "T"}
    found = [(group, [each.name for each in of]) for group, of in grouped(config, keys)]
    assert found == [
        ("Connection", ["host", "url"]),
        ("Common", ["tasks.max"]),
        ("Further settings", ["transforms.a.type"]),
    ]
    html = config_html(pb.Connector(name="c", config=config), keys, "")
    assert "1 settings with their default" in html


def test_a_config_of_thousands_of_long_settings_is_bounded() -> None:
    config = {f"s.{at}": "x" * 500 for at in range(2_000)} | {"b": "x" * 5_000}
    html = config_html(pb.Connector(name="c", config={**config, "a": SCRIPT}), [], "")
    assert "1,502 more settings are in the text below" in html
    assert html.count('scope="row"') == SETTINGS_MAX
    assert "3,000 more characters" in html
    assert "<script" not in html


def test_a_config_is_the_same_as_yaml_and_as_json() -> None:
    odd = ["yes", "Null", "n", "~", "1", "1.50", "0x1F", "1e5", ".inf", "2001-01-01", "a: b", "# a"]
    odd += [
        "",
        " a ",
        "a\nb\r\tc",
        '"',
        "'",
        "\\",
        "{}",
        "[a]",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "=",
        "<<",
    ]
    odd += ["é", "\x7f\x85\u2028\ufeff", SCRIPT, "a b", "on", "acme.Source", "a/b-c", "true "]
    odd += ["<<", "x" * 2_000, "\ufffe\U0001f600"]
    config = {f"k{at}": value for at, value in enumerate(odd)} | dict.fromkeys(odd, "v")
    connector = pb.Connector(name="yes", config=config)
    expected = {"name": "yes", "config": config}
    assert yaml.safe_load(yaml_of(connector)) == expected
    assert json.loads(json_of(connector)) == expected
    assert "k0: " in yaml_of(connector)
    assert ": acme.Source\n" in yaml_of(connector)


def version(revision: int, **config: str) -> pb.ConnectorChange:
    changed = pb.ConfigVersion(config=config, changed_keys=config.keys(), differing_keys=["a"])
    return pb.ConnectorChange(revision=revision, author=SCRIPT, config_version=changed)


def test_a_history_has_values_before_and_after_each_change() -> None:
    changes = [version(3, a="3", token="********"), version(2, a="2", token="********")]
    html = history_html(VISIT, "c", changes, has_more=False)
    first = html.split("revision 2")[0]
    assert "<code>2</code>" in first
    assert "<code>3</code>" in first
    assert "a secret, which differs" in first
    assert "<script" not in html
    deleted = pb.ConnectorChange(revision=4, deletion=pb.ConnectorDeletion())
    recreated = history_html(VISIT, "c", [version(5, a="5"), deleted, *changes], has_more=False)
    # nothing is compared with a config of before the deletion
    assert "<code>3</code>" not in recreated.split("deleted the connector")[0]
    many = history_html(
        VISIT, "c", [version(at, a="1") for at in range(CHANGES_MAX + 1)], has_more=False
    )
    assert "Earlier changes are left out" in many
