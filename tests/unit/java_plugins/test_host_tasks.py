"""Tasks of Java plugins in a real JVM, without Spark: they know where their records are stored, and
a method that does not return concerns only its own connector.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from drover.connector import (
    ConnectorContext,
)
from drover.connector.settings import CONFIG_TEXTS
from drover.connectors.java.tasks import JavaSourceTask, JavaTaskError
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.values import Placement, PublishedRange
from drover.java_plugins.host import (
    CALL_LIMIT,
    ENVIRONMENT_VARIABLE,
    HOSTS,
    POLL_LIMIT,
    Host,
    JavaHostError,
)
from tests.support.waiting import wait_until
from tests.unit.java_plugins.host_tasks import (
    TIMEOUT_S,
    Make,
    class_of,
    feed,
    lines,
    new_task,
    polled,
    rows,
)

_HANGS = r"{} of org\.acme\.Behaviours\${} \(test-plugin\) has not returned for .*raise {}"
_RETIRE = Host.retire

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("hosts", "limits")]


class Neighbour:
    """A source task in the JVM in which methods of other connectors hang."""

    def __init__(self, task: JavaSourceTask) -> None:
        self._task = task
        self._count = 0
        self.goes_on()

    @property
    def host(self) -> Host:
        """Its JVM."""
        return self._task._host

    def goes_on(self) -> None:
        """Read ten further records."""
        batch = polled(self._task)
        self._count += 10
        assert [each["key"] for each in rows(batch)] == [
            f"k{n}".encode() for n in range(self._count - 10, self._count)
        ]
        self._task.committed(batch.offsets)


@pytest.fixture(scope="module")
def neighbour(behaviours: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbour]:
    small: dict[str, Any] = {"batch.max.records": 10}
    task, context = new_task(behaviours, "Source", "endless", tmp_path_factory.mktemp("n"), **small)
    task.start(context)
    yield Neighbour(task)
    task.stop()


# --- acknowledgements -----------------------------------------------------------------------------


def acknowledged(
    make: Make, tmp_path: Path, ranges: Sequence[PublishedRange], counts: Mapping[str, int]
) -> list[str]:
    """The places that a source receives for its records, from batches that are stored together; the
    first has ten records.
    """
    task, context = make("Lean", "", **{"batch.max.records": 10})
    task.start(context)
    first = polled(task)
    context.config["batch.max.records"] = 10_000
    batches = [first, polled(task)]
    while (count := sum(len(rows(each)) for each in batches)) < 100:
        batches.append(polled(task))
    task.placed(Placement(ranges, counts), len(batches))
    for each in batches:
        task.committed(each.offsets)
    trace = tmp_path / "trace-0"
    wait_until(lambda: len(lines(trace, "ack")) >= count, timeout_s=TIMEOUT_S)
    assert [each.split()[1] for each in lines(trace, "ack")] == [f"k{n}" for n in range(100)]
    return [each.partition(" numbers-")[2] for each in lines(trace, "ack")]


def test_a_source_is_told_the_offsets_of_its_stored_records(make: Make, tmp_path: Path) -> None:
    ranges = [PublishedRange("numbers", 0, 70, 85), PublishedRange("numbers", 0, 90, 175)]
    found = acknowledged(make, tmp_path, ranges, {"numbers": 1})
    assert found == [f"0@{n}" for n in (*range(70, 85), *range(90, 175))]


def test_a_source_is_told_the_partition_of_each_key(make: Make, tmp_path: Path) -> None:
    keys = pa.array([f"k{n}".encode() for n in range(100)])
    partitions = partitions_for_keys(keys, 3).to_pylist()
    ranges = [PublishedRange("numbers", p, 10, 10 + partitions.count(p)) for p in range(3)]
    found = acknowledged(make, tmp_path, ranges, {"numbers": 3})
    assert found == [f"{p}@{10 + partitions[:n].count(p)}" for n, p in enumerate(partitions)]


@pytest.mark.parametrize(("end", "counts"), [(169, {"numbers": 1}), (170, {})])
def test_offsets_are_unknown_where_it_is_not_known_which_records_are_stored(
    make: Make, tmp_path: Path, end: int, counts: Mapping[str, int]
) -> None:
    found = acknowledged(make, tmp_path, [PublishedRange("numbers", 0, 70, end)], counts)
    assert found == ["0@-1"] * 100


def test_commit_is_called_when_all_polled_records_are_stored_and_acknowledged(
    make: Make, tmp_path: Path
) -> None:
    task, context = make("Source", "", **{"batch.max.records": 10})
    task.start(context)
    count = 0
    while count < 100:
        batch = polled(task)
        count += len(rows(batch))
        task.committed(batch.offsets)
    trace = tmp_path / "trace-0"
    wait_until(lambda: lines(trace, "commit"), timeout_s=TIMEOUT_S)
    acknowledged_count = polled_count = 0
    for each in trace.read_text().splitlines():
        if each.startswith("poll"):
            polled_count = int(each.split()[1])
        elif each.startswith("ack"):
            acknowledged_count += 1
        elif each == "commit":
            assert acknowledged_count == polled_count


def test_commit_is_called_for_the_last_records_before_a_poll_that_waits(
    make: Make, tmp_path: Path
) -> None:
    """As in https://github.com/apache/pulsar-connectors/issues/23."""
    task, context = make("Source", "block", **{"batch.max.records": 10})
    task.start(context)
    for _ in range(3):
        task.committed(polled(task).offsets)

    def is_committed() -> bool:
        assert task.poll() is None
        return (tmp_path / "trace-0").read_text().splitlines()[-2:] == [
            "ack k29 numbers-0@-1",
            "commit",
        ]

    wait_until(is_committed, timeout_s=TIMEOUT_S)


def test_records_do_not_wait_in_the_jvm_for_a_transaction_of_drover(make: Make) -> None:
    hour = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "3600000"}
    task, context = make("Source", "", more_texts=hour)
    task.start(context)
    assert rows(polled(task))


@pytest.mark.parametrize("name", ["Source", "Sink"])
def test_libraries_of_a_plugin_find_its_classes_by_the_loader_of_the_thread(
    make: Make, tmp_path: Path, name: str
) -> None:
    task, context = make(name, "note loader")
    task.start(context)
    assert lines(tmp_path / "trace-0", "loader") == ["loader true"]


# --- methods that do not return -------------------------------------------------------------------


def test_a_source_whose_poll_does_not_return_is_named_and_stops_no_other(
    make: Make, neighbour: Neighbour
) -> None:
    task, context = make("Source", "hang in poll", **{"java.poll.timeout.ms": 500})
    task.start(context)
    assert task._host is neighbour.host
    words = _HANGS.format(r"poll\(\)", "Source", r"java\.poll\.timeout\.ms")
    with pytest.raises(JavaTaskError, match=rf"{words}(?s:.*)misbehave"):
        polled(task)
    task.stop()
    neighbour.goes_on()


@pytest.mark.parametrize("method", ["open", "put", "preCommit"])
def test_a_sink_whose_method_does_not_return_is_named_and_stops_no_other(
    make: Make, neighbour: Neighbour, method: str
) -> None:
    task, context = make("Sink", f"hang in {method}", **{"java.call.timeout.ms": 500})
    task.start(context)
    assert task._host is neighbour.host
    feed(task, 1)
    words = _HANGS.format(rf"{method}\(\)", "Sink", r"java\.call\.timeout\.ms")
    with pytest.raises(JavaTaskError, match=words):
        wait_until(lambda: task._progress(None, 200), timeout_s=TIMEOUT_S)
    task.stop()
    neighbour.goes_on()


@pytest.mark.parametrize("name", ["Source", "Sink"])
def test_a_transform_that_does_not_return_is_reported_with_its_place_and_stops_no_other(
    make: Make, neighbour: Neighbour, name: str
) -> None:
    task, context = make(name, "", **{"java.call.timeout.ms": 500})
    texts = context.config[CONFIG_TEXTS]
    texts["java.host.transforms"] = "wait"
    texts["java.host.transforms.wait.type"] = "org.acme.Behaviours$Endless"
    task.start(context)
    assert task._host is neighbour.host
    words = _HANGS.format("a converter, transform or predicate", name, r"java\.call\.timeout\.ms")
    if name == "Sink":
        feed(task, 1)
    go_on = (lambda: task._progress(None, 200)) if name == "Sink" else task.poll
    with pytest.raises(JavaTaskError, match=rf"{words}(?s:.*)Behaviours\$Endless.apply"):
        wait_until(go_on, timeout_s=TIMEOUT_S)
    task.stop()
    neighbour.goes_on()


@pytest.mark.parametrize(
    ("name", "mode", "method"),
    [
        ("Source", "hang in start", r"start\(\)"),
        ("Sink", "hang in start", r"start\(\)"),
        ("Stuck", "", "the constructor"),
    ],
)
def test_a_task_that_does_not_start_is_named_and_stops_no_other(
    make: Make,
    neighbour: Neighbour,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    mode: str,
    method: str,
) -> None:
    task, context = make(name, mode)
    monkeypatch.setenv(CALL_LIMIT[0], "3000")
    with pytest.raises(JavaTaskError, match=_HANGS.format(method, name, CALL_LIMIT[0])):
        task.start(context)
    assert task._host is neighbour.host
    task.stop()
    neighbour.goes_on()


def test_a_source_that_hangs_while_its_records_are_acknowledged_is_named(
    make: Make, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, context = make("Source", "hang in commitRecord")
    task.start(context)
    batch = polled(task)
    monkeypatch.setenv(POLL_LIMIT[0], "500")
    words = _HANGS.format(r"commitRecord\(\)", "Source", POLL_LIMIT[0])
    with pytest.raises(JavaTaskError, match=words):
        task.committed(batch.offsets)
    task.stop()
    neighbour.goes_on()


@pytest.mark.parametrize("name", ["Source", "Sink"])
def test_a_task_whose_stop_does_not_return_is_left_and_stops_no_other(
    make: Make, neighbour: Neighbour, name: str
) -> None:
    task, context = make(name, "hang in stop")
    task.start(context)
    task.stop()
    neighbour.goes_on()


@pytest.mark.parametrize(
    ("phase", "method"), [("start", "start"), ("task configs", "taskConfigs"), ("stop", "stop")]
)
def test_a_connector_whose_method_does_not_return_is_named_and_stops_no_other(
    behaviours: Path,
    neighbour: Neighbour,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    method: str,
) -> None:
    mode = f"hang in {phase}" if phase == "task configs" else f"hang in connector {phase}"
    texts = {"mode": mode, "trace": str(tmp_path / "trace"), "connector.class": "x"}
    made: Any = class_of(behaviours, "Source")()
    context = ConnectorContext("x", config_texts=texts)
    if phase != "start":
        made.start(context, {})

    def run() -> None:
        if phase == "start":
            made.start(context, {})
        elif phase == "task configs":
            made.task_configs(1)
        else:
            made.stop()

    monkeypatch.setenv(CALL_LIMIT[0], "1000")
    with pytest.raises(
        JavaTaskError, match=_HANGS.format(rf"{method}\(\)", "Source", CALL_LIMIT[0])
    ):
        run()
    monkeypatch.setenv(CALL_LIMIT[0], "600000")
    if phase != "stop":
        made.stop()
    neighbour.goes_on()


def test_after_a_hung_call_the_next_start_has_a_new_jvm_and_the_old_one_ends_with_its_last_task(
    make: Make, behaviours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "retire", _RETIRE)
    plugin = tmp_path / "other-plugin"
    shutil.copytree(behaviours, plugin)
    other, context = make("Source", "endless", plugin=plugin, **{"batch.max.records": 10})
    other.start(context)
    old = Neighbour(other)
    task, context = make("Source", "hang in poll", plugin=plugin, **{"java.poll.timeout.ms": 500})
    task.start(context)
    assert task._host is old.host
    with pytest.raises(JavaTaskError, match="A restart runs in a new JVM"):
        polled(task)
    task.stop()
    again, context = make("Source", "", plugin=plugin)
    again.start(context)
    assert again._host is not old.host
    old.goes_on()
    other.stop()
    assert not old.host.is_running
    assert again._host.is_running


def test_a_poll_that_waits_is_interrupted_by_the_stop(make: Make, tmp_path: Path) -> None:
    """As in https://github.com/apache/kafka/pull/14316."""
    task, context = make("Source", "block", **{"batch.max.records": 10})
    task.start(context)
    for _ in range(3):
        task.committed(polled(task).offsets)
    wait_until(lambda: "CountDownLatch" in task._stack(), timeout_s=TIMEOUT_S)
    task.stop()
    assert lines(tmp_path / "trace-0", "interrupted") == ["interrupted"]


def test_after_a_stop_that_a_poll_survives_the_next_start_has_a_new_jvm(
    make: Make, behaviours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in https://github.com/confluentinc/kafka-connect-jdbc/issues/1360."""
    monkeypatch.setattr(Host, "retire", _RETIRE)
    plugin = tmp_path / "other-plugin"
    shutil.copytree(behaviours, plugin)
    neighbour, context = make("Source", "endless", plugin=plugin)
    neighbour.start(context)
    task, context = make("Source", "hang in poll", plugin=plugin)
    task.start(context)
    wait_until(lambda: "hang" in task._stack(), timeout_s=TIMEOUT_S)
    task.stop()
    again, context = make("Source", "", plugin=plugin)
    again.start(context)
    assert again._host is not neighbour._host
    assert neighbour._host.is_running


def test_a_connector_whose_start_fails_is_stopped(
    behaviours: Path, neighbour: Neighbour, tmp_path: Path
) -> None:
    """As in https://github.com/apache/kafka/pull/16095."""
    trace = tmp_path / "trace"
    texts = {"mode": "fail in connector start", "trace": str(trace), "connector.class": "x"}
    made: Any = class_of(behaviours, "Source")()
    with pytest.raises(JavaTaskError, match="no luck in connector start"):
        made.start(ConnectorContext("x", config_texts=texts), {})
    made.stop()
    assert lines(trace, "connector stop") == ["connector stop"]


def test_the_transforms_of_a_task_that_does_not_start_are_closed(
    make: Make, tmp_path: Path
) -> None:
    """As in https://github.com/apache/kafka/pull/8071."""
    task, context = make("Source", "")
    texts = context.config[CONFIG_TEXTS]
    texts["java.host.transforms"] = "first,second"
    for name in ("first", "second"):
        texts[f"java.host.transforms.{name}.type"] = "org.acme.Behaviours$Closing"
        texts[f"java.host.transforms.{name}.trace"] = str(tmp_path / name)
    texts["java.host.transforms.second.code"] = "refused"
    with pytest.raises(JavaTaskError, match="no luck in configure"):
        task.start(context)
    assert lines(tmp_path / "first", "closed") == ["closed"]


def test_a_connector_that_starts_too_late_is_stopped(
    behaviours: Path, neighbour: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, door = tmp_path / "trace", tmp_path / "door"
    texts = {
        "mode": "wait in connector start",
        "trace": str(trace),
        "door": str(door),
        "connector.class": "x",
    }
    made: Any = class_of(behaviours, "Source")()
    monkeypatch.setenv(CALL_LIMIT[0], "1000")
    with pytest.raises(JavaTaskError, match="has not returned"):
        made.start(ConnectorContext("x", config_texts=texts), {})
    made.stop()
    door.touch()
    wait_until(lambda: lines(trace, "connector stop"), timeout_s=TIMEOUT_S)
    neighbour.goes_on()


# --- the environment ------------------------------------------------------------------------------


def test_a_plugin_sees_the_environment_variables_that_the_operator_names(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in https://github.com/apache/camel-kafka-connector/issues/1263."""
    monkeypatch.setenv("ACME_ROLE", "reader")
    monkeypatch.setenv("ACME_SECRET", "s3cret")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dacme.store=/etc/trust")
    for number, (names, role, store) in enumerate(
        [("", "null", "null"), ("ACME_ROLE, JDK_JAVA_OPTIONS", "reader", "/etc/trust")]
    ):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, names)
        task, context = make("Source", "note environment", **{"java.isolation": "task"})
        task.start(context)
        trace = tmp_path / f"trace-{number}"
        assert lines(trace, "variable") == [f"variable {role} null"]
        assert lines(trace, "property") == [f"property {store}"]


@pytest.mark.parametrize("name", ["DROVER_TOKEN", "HOME", "a=b"])
def test_variables_of_drover_are_never_shown_to_a_plugin(
    make: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, f"ACME_ROLE,{name}")
    task, context = make("Source", "", **{"java.isolation": "task"})
    with pytest.raises(JavaHostError, match=f"DROVER_JAVA_ENVIRONMENT .*remove '{name}' from it"):
        task.start(context)


# --- metrics and loggers --------------------------------------------------------------------------


def test_metrics_of_a_plugin_are_figures_of_its_task(make: Make) -> None:
    figures: dict[str, int] = {}
    task, context = make("Source", "measure")
    task.start(replace(context, report=figures.__setitem__))

    def has_all() -> bool:
        task.poll()
        return figures.get("records_made_count") == 100

    wait_until(has_all, timeout_s=TIMEOUT_S)
    assert figures == {"records_made_count": 100, "fill_percent": 13}


def test_a_log_line_of_a_plugin_keeps_its_level_its_logger_and_its_exception(make: Make) -> None:
    """As in https://github.com/debezium/debezium/pull/4120."""
    task, context = make("Source", "log an error")
    with capture_logs() as logged:
        task.start(context)
        wait_until(
            lambda: any("it failed" in each["event"] for each in logged), timeout_s=TIMEOUT_S
        )
    long, failure = (each for each in logged if each["log_level"] == "error")
    assert long["event"].startswith("x" * 1_900)
    assert len(long["event"]) <= 2_000
    assert "trace" not in long
    assert failure["event"] == "it failed outer"
    assert "java.lang.IllegalStateException: outer" in failure["trace"]
    assert "Behaviours$NumbersWithoutCommit.start" in failure["trace"]
    assert "Caused by: java.io.IOException: the disk is slow" in failure["trace"]
    assert any("it failed" in each and "Caused by" in each for each in task._host._lines)


def test_levels_of_java_loggers_are_set_in_running_and_later_jvms(make: Make) -> None:
    task, context = make("Source", "log")
    task.start(context)

    def polls(host: Host, how: str) -> set[str]:
        found = list(host._lines)
        return {each.rpartition(" ")[2] for each in found if f"{how} poll" in each}

    def logs(host: Host) -> bool:
        return bool(polls(host, "logged"))

    def is_silent(host: Host) -> bool:
        return len(polls(host, "printed") - polls(host, "logged")) > 10

    shared = task._host
    try:
        wait_until(lambda: is_silent(shared), timeout_s=TIMEOUT_S, describe="no debug line")
        HOSTS.set_levels({"org.acme": "DEBUG"})
        wait_until(lambda: logs(shared), timeout_s=TIMEOUT_S, describe="a debug line")
        later, context = make("Source", "log", **{"java.isolation": "task"})
        later.start(context)
        assert later._host is not shared
        wait_until(lambda: logs(later._host), timeout_s=TIMEOUT_S, describe="one in a later JVM")
    finally:
        HOSTS.set_levels({"org.acme": "WARNING"})
    wait_until(lambda: is_silent(shared), timeout_s=TIMEOUT_S, describe="no more debug lines")
