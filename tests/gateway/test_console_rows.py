"""What the console shows of connectors, which of them, and what an action will do; pure."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from drover.api.common.v1 import failures_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console.actions import ACTIONS, DELETE, counts_of, effect_of, offered
from drover_gateway.console.connectors_page import form_value, row_html
from drover_gateway.console.graph import NODES_MAX, SINKS, SOURCES, TOPICS, graph_of
from drover_gateway.console.html import Html, join, tag, text
from drover_gateway.console.rows import Filters, Row, RowCounts, State, row_of
from drover_gateway.console.sessions import SESSION_S, TOKEN_MAX_CHARS, Sessions

RUNNING, FAILED = pb.RUN_STATE_RUNNING, pb.RUN_STATE_FAILED
PAUSED, STOPPED = pb.RUN_STATE_PAUSED, pb.RUN_STATE_STOPPED


def row(
    name: str = "a",
    state: "pb.RunState.ValueType" = RUNNING,
    tasks: "tuple[pb.RunState.ValueType, ...]" = (RUNNING,),
    *,
    kind: "pb.ConnectorType.ValueType" = pb.CONNECTOR_TYPE_SOURCE,
    class_name: str = "acme.Source",
    target: "pb.TargetState.ValueType" = pb.TARGET_STATE_STARTED,
    lag: int | None = None,
    trace: str = "",
) -> Row:
    status = pb.ConnectorStatus(
        name=name,
        type=kind,
        connector=pb.ConnectorState(state=state, worker_id="w1:7411", trace=trace),
        tasks=[
            pb.TaskState(task=at, state=each, worker_id=f"w{at}:7411", trace=trace)
            for at, each in enumerate(tasks)
        ],
    )
    if lag is not None:
        status.lag = lag
    config = {"connector.class": class_name}
    return row_of(status, pb.Connector(name=name, config=config, target_state=target))


@pytest.mark.parametrize(
    ("own", "tasks", "expected"),
    [
        (RUNNING, (RUNNING, RUNNING), State.RUNNING),
        (RUNNING, (RUNNING, FAILED), State.FAILED),
        (RUNNING, (pb.RUN_STATE_UNASSIGNED, RUNNING), State.UNASSIGNED),
        (RUNNING, (pb.RUN_STATE_RESTARTING, pb.RUN_STATE_UNASSIGNED), State.RESTARTING),
        (RUNNING, (), State.RUNNING),
        (PAUSED, (FAILED,), State.FAILED),
        (PAUSED, (PAUSED,), State.PAUSED),
        (STOPPED, (), State.STOPPED),
        (FAILED, (RUNNING,), State.FAILED),
        (99, (RUNNING,), State.UNASSIGNED),
    ],
)
def test_a_connector_has_the_state_of_the_part_that_needs_attention(
    own: Any, tasks: Any, expected: State
) -> None:
    assert row(state=own, tasks=tasks).state is expected


def test_the_cause_is_one_line_of_the_trace_or_of_the_last_failure() -> None:
    trace = "Traceback (most recent call last):\n  File x\nOSError: the disk is full\n"
    assert row(tasks=(FAILED,), trace=trace).cause == "OSError: the disk is full"
    assert row(tasks=(FAILED,)).cause == "no cause was reported"
    assert row(trace="of a former failure").cause == ""
    status = pb.ConnectorStatus(name="a", connector=pb.ConnectorState(state=FAILED))
    failure = failures_pb2.Failure(message="no\nroute " + "x" * 300)
    failure.fail_time.FromMilliseconds(5_000)
    status.connector.failures.failures.append(failure)
    status.connector.failures.restart_time.FromMilliseconds(9_000)
    found = row_of(status, None)
    assert found.cause.startswith("no route xxx")
    assert len(found.cause) == 200
    assert (found.failed_ms, found.restart_ms) == (5_000, 9_000)
    assert (found.class_name, found.target) == ("", "")


def test_what_has_failed_is_first_and_filters_are_in_the_url() -> None:
    rows = [
        row("b"),
        row("a", tasks=(FAILED,)),
        row("C", kind=pb.CONNECTOR_TYPE_SINK, class_name="acme.Sink", lag=5),
        row("d", STOPPED, ()),
    ]
    filters = Filters.read([])
    assert [each.name for each in filters.sorted(rows)] == ["a", "C", "b", "d"]
    assert filters.url() == "/ui/connectors"
    cases = {
        "q=c": ["C"],
        "state=failed&state=stopped": ["a", "d"],
        "type=sink": ["C"],
        "class=Source&sort=name": ["a", "b", "d"],
        "worker=w1%3A7411&q=b": ["b"],
        "worker=elsewhere": [],
        "sort=lag": ["C", "a", "b", "d"],
    }
    for query, expected in cases.items():
        fields = [tuple(each.split("=")) for each in query.replace("%3A", ":").split("&")]
        found = Filters.read([(key, value) for key, value in fields])
        assert [each.name for each in found.sorted(rows)] == expected, query
        assert Filters.read(found.fields()) == found
    odd = [("state", "gone"), ("sort", "x"), ("page", "9" * 5_000), ("unknown", "x")]
    assert Filters.read([("page", "-3")]).page == 1
    assert Filters.read(odd).page == 999_999
    assert Filters.read(odd).selects_all
    counts = RowCounts()
    for each in rows:
        counts.add(each)
    assert counts.summary().states[State.FAILED] == 1
    assert counts.summary().classes == {"Sink": 1, "Source": 3}


def test_what_an_action_will_do_is_told_before() -> None:
    pause, resume, stop = ACTIONS["pause"], ACTIONS["resume"], ACTIONS["stop"]
    restart = ACTIONS["restart-failed"]
    paused = row(state=PAUSED, tasks=(PAUSED,), target=pb.TARGET_STATE_PAUSED)
    stopped = row(state=STOPPED, tasks=(), target=pb.TARGET_STATE_STOPPED)
    failed = row(state=FAILED, tasks=(FAILED, RUNNING, FAILED))
    cases = [
        (pause, row(), "1 task will pause"),
        (pause, paused, "nothing: it is paused already"),
        (resume, paused, "it will run from its committed offsets"),
        (resume, stopped, "it will run from its committed offsets"),
        (resume, row(), "nothing: it is not paused or stopped"),
        (stop, failed, "3 tasks will be removed; config and offsets are kept"),
        (stop, stopped, "nothing: it is stopped already"),
        (restart, failed, "the connector and tasks 0, 2 will restart"),
        (restart, row(tasks=(RUNNING, FAILED)), "task 1 will restart"),
        (restart, row(), "nothing: neither it nor a task has failed"),
        (restart, None, "nothing: there is no connector with this name"),
        (DELETE, None, "nothing: there is no connector with this name"),
    ]
    for action, shown, expected in cases:
        effect = effect_of(action, "a", shown)
        assert effect.then == expected
        assert effect.is_change is not expected.startswith("nothing")
    deleted = effect_of(DELETE, "a", row())
    assert "config and history will be removed; offsets and topics are kept" in deleted.then
    config = {"connector.class": "PostgresCdcSource", "slot.name": "orders_slot"}
    assert any("orders_slot" in each for each in effect_of(DELETE, "a", row(), config).remains)


@pytest.mark.parametrize(
    ("target", "tasks", "expected"),
    [
        (pb.TARGET_STATE_STARTED, (RUNNING,), "restart pause stop delete"),
        (pb.TARGET_STATE_STARTED, (FAILED,), "restart-failed restart pause stop delete"),
        (pb.TARGET_STATE_PAUSED, (PAUSED,), "restart resume stop delete"),
        (pb.TARGET_STATE_PAUSED, (FAILED,), "restart-failed restart resume stop delete"),
        (pb.TARGET_STATE_STOPPED, (), "pause resume delete"),
        # the target of a new connector is not known for a moment
        (pb.TARGET_STATE_UNSPECIFIED, (), "restart pause resume stop delete"),
    ],
)
def test_what_would_do_nothing_is_not_offered(
    target: "pb.TargetState.ValueType",
    tasks: "tuple[pb.RunState.ValueType, ...]",
    expected: str,
) -> None:
    shown = row(tasks=tasks, target=target)
    assert " ".join(each.key for each in offered(shown)) == expected
    assert f'data-does="{expected}"' in row_html(shown)
    for action in ACTIONS.values():
        assert effect_of(action, "a", shown).is_change is (action in offered(shown))


def test_the_affected_connectors_of_a_list_are_counted() -> None:
    paused = row(tasks=(PAUSED,), target=pb.TARGET_STATE_PAUSED)
    counts = counts_of([row(), row(tasks=(FAILED,)), paused])
    expected = {"restart-failed": 1, "restart": 3, "pause": 2, "resume": 1, "stop": 3, "delete": 3}
    assert counts == expected
    assert not counts_of([])


def test_each_action_has_its_commands() -> None:
    for action in ACTIONS.values():
        assert action.cli(["a b", "c"]).startswith(f"drover connector {action.command} 'a b' c")
        assert action.grpc('it\'s "x"').startswith('grpcurl -d \'{"name": "it\'')
        assert f"ConnectService/{action.rpc}" in action.grpc("a")
        assert action.rpc in pb.DESCRIPTOR.services_by_name["ConnectService"].methods_by_name


def test_text_is_escaped_wherever_it_is() -> None:
    attack = "\"><img src=x onerror=alert(1)>'\x00\x1b\x85"
    assert "<img" not in text(attack)
    assert text("\x00\x1b") == "\\x00\\x1b"
    assert tag("a", "x<y", href='"', hidden=True, title=None) == (
        '<a href="&quot;" hidden>x&lt;y</a>'
    )
    assert join("<", None, [Html("<b>"), 3]) == "&lt;<b>3"
    shown = row_html(row(attack, tasks=(FAILED,), class_name=attack, trace=attack))
    assert "<img" not in shown
    assert "\x00" not in shown
    assert form_value(attack) in shown


def test_a_session_is_sealed_and_expires() -> None:
    old, new = "k" * 32, "n" * 32
    session = Sessions([old]).new("t" * TOKEN_MAX_CHARS, 1_000.0)
    for secure in (True, False):
        headers = Sessions([old]).cookies(session, secure=secure)
        cookies = dict(each.partition(";")[0].split("=", 1) for each in headers)
        assert "t" * 20 not in "".join(cookies.values())
        assert all(len(each) < 4_096 for each in headers)
        assert sum(map(len, cookies.values())) < 12_000
        # with a new key first, sessions of the old one stay valid
        both = Sessions([new, old])
        assert both.read(cookies, 1_001.0, secure=secure) == session
        assert both.read(cookies, 1_000.0 + SESSION_S, secure=secure) is None
        assert Sessions([new]).read(cookies, 1_001.0, secure=secure) is None
        assert both.read(cookies, 1_001.0, secure=not secure) is None
        broken = {name: f"A{value[1:]}" if value else "" for name, value in cookies.items()}
        assert both.read(broken, 1_001.0, secure=secure) is None
        for odd in ("", "AAAA", "é", "=", "A" * 3_000):
            assert both.read({next(iter(cookies)): odd}, 1_001.0, secure=secure) is None
    token = Sessions([old]).form_token(session, "/ui/x")
    assert both.accepts_form(session, "/ui/x", token)
    other = both.new("", 1_000.0)
    for wrong in (("/ui/y", token), ("/ui/x", ""), ("/ui/x", "é"), ("/ui/x", token[:-1])):
        assert not both.accepts_form(session, *wrong)
    assert not both.accepts_form(other, "/ui/x", token)


def test_the_graph_goes_from_sources_through_topics_to_sinks() -> None:
    rows = [row("in"), row("out", kind=pb.CONNECTOR_TYPE_SINK, lag=7), row("alone")]
    graph = graph_of(rows, {"in": ["orders"], "out": ["orders"]})
    assert list(graph.edges) == [("c:in", "t:orders"), ("t:orders", "c:out")]
    columns = {key: each.node.column for key, each in graph.nodes.items()}
    assert columns == {
        "c:in": SOURCES,
        "t:orders": TOPICS,
        "c:out": SINKS,
        "c:alone": SOURCES,
    }
    assert graph.nodes["c:out"].node.note == "running · lag 7"
    places = {(each.x, each.y) for each in graph.nodes.values()}
    assert len(places) == len(graph.nodes)


def test_a_large_graph_is_grouped_by_class() -> None:
    rows = [row(f"in-{at}", class_name="acme.In") for at in range(NODES_MAX)]
    rows += [
        row(f"out-{at}", kind=pb.CONNECTOR_TYPE_SINK, class_name="acme.Out", lag=1)
        for at in range(3)
    ]
    rows[0] = row("in-0", tasks=(FAILED,), class_name="acme.In")
    topics = {each.name: [f"t-{each.name}"] for each in rows} | {"out-1": ["t-in-0", "t-in-1"]}
    graph = graph_of(rows, topics)
    assert graph.is_grouped
    labels = {each.node.label: each.node for each in graph.nodes.values()}
    assert labels["200 of In"].state is State.FAILED
    assert labels["200 of In"].note == "1 failed"
    assert labels["3 of Out"].note == "3 running · lag 3"
    # 198 topics of sources only, 2 between both, and 2 of sinks only
    assert {"198 topics", "2 topics"} <= labels.keys()
    assert sum(each.node.size for each in graph.nodes.values() if each.node.column == TOPICS) == 202


def test_counts_that_follow_changes_equal_counts_of_the_present_rows() -> None:
    first = [row("a", lag=5), row("b", FAILED), row("c", class_name="acme.Sink", lag=7)]
    changed = [row("a", FAILED, lag=1), row("b", tasks=(RUNNING, RUNNING)), row("d", PAUSED)]
    followed, present = RowCounts(), RowCounts()
    for each in first:
        followed.add(each)
    for each in first:
        followed.remove(each)
    for each in changed:
        followed.add(each)
        present.add(each)
    assert followed.summary() == present.summary()
    assert followed.totals() == present.totals()
    assert (present.totals().lag, present.totals().task_count) == (1, 4)
    followed.remove(changed[0])
    assert followed.totals().lag is None


def test_a_session_of_another_version_of_the_gateway_is_none() -> None:
    """The user signs in again; gateways of two versions have the same keys during an upgrade."""
    sessions = Sessions(["a key of at least 32 characters!"])
    session = sessions.new("token", 0)
    for fields in ({**asdict(session), "of_a_later_version": 1}, {"id": "1"}):
        value = sessions.sealed(json.dumps(fields).encode(), "drover-session")
        assert sessions.read({"drover-session": value}, 1, secure=False) is None


def test_a_sealed_secret_is_opened_only_for_the_user_who_typed_it() -> None:
    sessions = Sessions(["a key of at least 32 characters!"])
    ann, bob = sessions.new("ann's token", 0), sessions.new("bob's token", 0)
    sealed = sessions.seal("s3cret", ann)
    assert sessions.unseal(sealed, ann) == "s3cret"
    # a later session with the same token, or of the same user at the issuer
    assert sessions.unseal(sealed, sessions.new("ann's token", 9)) == "s3cret"
    assert sessions.unseal(sealed, bob) is None
    assert sessions.unseal(sealed, sessions.new("", 0)) is None
    at_issuer = replace(ann, subject="ann", token="t1")
    sealed = sessions.seal("s3cret", at_issuer)
    assert sessions.unseal(sealed, replace(at_issuer, id="other", token="t2")) == "s3cret"
    for other in (replace(at_issuer, subject="bob"), ann, replace(ann, token="ann")):
        assert sessions.unseal(sealed, other) is None
    # the session of the page had ended: the user signs in, and continues
    assert sessions.unseal(sessions.seal("s3cret", sessions.new("", 0)), bob) == "s3cret"
