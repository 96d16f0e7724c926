"""The config machine: which writes are refused, what is appended, how repeats are answered."""

import dataclasses
from itertools import count

import pytest

from drover.errors import (
    AbortedError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
)
from drover.model.config import ConfigEvent, ConfigMap, TargetState, TaskConfigsUpdated
from drover.model.ids import TaskId
from drover.runtime.change_buffer import ChangeBuffer
from drover_config_store.core.answers import REMEMBERED_REQUESTS
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutRestartRequest,
    PutTargetState,
    PutTaskConfigs,
    WriteAnswer,
)
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import VALUE_MAX_BYTES, ConfigRecord, decode, encode
from drover_config_store.core.validate import REQUEST_ID_MAX_CHARS
from tests.support.log_machine import LogMachineDriver

Driver = LogMachineDriver[ConfigMachine, ConfigRecord]
_numbers = count()


@pytest.fixture
def driver() -> Driver:
    return LogMachineDriver(ConfigMachine, encode, decode)


def fresh_id() -> str:
    return f"id-{next(_numbers)}"


def put(
    name: str = "c",
    config: ConfigMap | None = None,
    *,
    initial_state: TargetState | None = None,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> PutConnectorConfig:
    return PutConnectorConfig(
        call_id=fresh_id(),
        request_id=fresh_id() if request_id is None else request_id,
        writer_epoch=7,
        name=name,
        config={"a": "1"} if config is None else config,
        initial_state=initial_state,
        expected_revision=expected_revision,
    )


def delete(name: str = "c") -> DeleteConnector:
    return DeleteConnector(call_id=fresh_id(), request_id=fresh_id(), writer_epoch=7, name=name)


def put_tasks(configs: list[ConfigMap], connector: str = "c") -> PutTaskConfigs:
    return PutTaskConfigs(
        call_id=fresh_id(),
        request_id=fresh_id(),
        writer_epoch=7,
        connector=connector,
        task_configs=[(TaskId(connector, index), config) for index, config in enumerate(configs)],
    )


def put_state(state: TargetState, name: str = "c") -> PutTargetState:
    return PutTargetState(call_id=fresh_id(), request_id=fresh_id(), name=name, target_state=state)


def restart(name: str = "c") -> PutRestartRequest:
    return PutRestartRequest(
        call_id=fresh_id(),
        request_id=fresh_id(),
        writer_epoch=7,
        name=name,
        only_failed=True,
        include_tasks=False,
    )


def keys(driver: Driver) -> list[str]:
    return [key.decode() for key, _, _ in driver.log]


# what is appended


def test_a_config_is_one_record_and_its_revision_is_never_zero(driver: Driver) -> None:
    assert driver.submit(put()) == WriteAnswer(end_offset=1, revision=1)
    assert keys(driver) == ["connector-c"]
    assert driver.machine.snapshot().connectors["c"].config_revision == 1


def test_create_writes_the_target_state_before_the_config(driver: Driver) -> None:
    answer = driver.submit(put(initial_state=TargetState.STOPPED))
    assert answer == WriteAnswer(end_offset=2, revision=2)
    assert keys(driver) == ["target-state-c", "connector-c"]
    assert driver.machine.snapshot().connectors["c"].target_state is TargetState.STOPPED


def test_delete_writes_tombstones_for_config_and_target_state(driver: Driver) -> None:
    driver.submit(put())
    assert driver.submit(delete()) == WriteAnswer(end_offset=3)
    assert [(key, value) for key, value, _ in driver.log[1:]] == [
        (b"connector-c", None),
        (b"target-state-c", None),
    ]
    assert driver.machine.snapshot().connectors == {}


def test_task_configs_are_followed_by_their_marker_in_one_append(driver: Driver) -> None:
    driver.submit(put())
    assert driver.submit(put_tasks([{"t": "0"}, {"t": "1"}])) == WriteAnswer(end_offset=4)
    assert keys(driver)[1:] == ["task-c-0", "task-c-1", "commit-c"]
    assert driver.machine.snapshot().task_configs == {
        TaskId("c", 0): {"t": "0"},
        TaskId("c", 1): {"t": "1"},
    }


def test_an_empty_set_of_tasks_is_a_marker_alone(driver: Driver) -> None:
    driver.submit(put())
    driver.submit(put_tasks([]))
    assert keys(driver)[1:] == ["commit-c"]
    assert driver.machine.snapshot().connectors["c"].task_count == 0


def test_every_write_but_the_target_state_needs_the_writers_epoch(driver: Driver) -> None:
    driver.submit(put())
    driver.submit(put_tasks([]))
    driver.submit(restart())
    driver.submit(put_state(TargetState.PAUSED))
    driver.submit(delete())
    assert driver.epochs == [7, 7, 7, None, 7]


# what is refused


@pytest.mark.parametrize(
    "event", [delete(), put_tasks([{}]), put_state(TargetState.PAUSED), restart()]
)
def test_writes_about_an_unknown_connector(driver: Driver, event: ConfigRequest) -> None:
    with pytest.raises(NotFoundError) as error:
        driver.submit(event)
    assert error.value.reason is Reason.CONNECTOR_NOT_FOUND
    assert driver.log == []


def test_a_deleted_connector_is_unknown(driver: Driver) -> None:
    driver.submit(put())
    driver.submit(delete())
    with pytest.raises(NotFoundError):
        driver.submit(delete())


def test_revisions(driver: Driver) -> None:
    assert driver.submit(put(expected_revision=0)).revision == 1
    with pytest.raises(AbortedError) as error:
        driver.submit(put(expected_revision=0))
    assert error.value.reason is Reason.REVISION_MISMATCH
    assert error.value.metadata == {"currentRevision": "1"}
    assert driver.submit(put(expected_revision=1)).revision == 2
    with pytest.raises(AbortedError):
        driver.submit(put("other", expected_revision=2))
    driver.submit(delete())
    assert driver.submit(put(expected_revision=0)).revision == 5


def test_an_initial_state_is_for_new_connectors_only(driver: Driver) -> None:
    driver.submit(put())
    with pytest.raises(InvalidArgumentError) as error:
        driver.submit(put(initial_state=TargetState.PAUSED))
    assert [violation.field for violation in error.value.violations] == ["initial_state"]
    assert len(driver.log) == 1


def test_all_faults_of_a_request_are_told_at_once(driver: Driver) -> None:
    bad = put(" a/\n", {"": "x"}, expected_revision=-1, request_id="")
    with pytest.raises(InvalidArgumentError) as error:
        driver.submit(bad)
    assert error.value.reason is Reason.INVALID_REQUEST
    assert [violation.field for violation in error.value.violations] == [
        "request_id",
        "name",
        "name",
        "config",
        "expected_revision",
    ]


def test_a_request_id_has_a_bound(driver: Driver) -> None:
    driver.submit(put(request_id="x" * REQUEST_ID_MAX_CHARS))
    with pytest.raises(InvalidArgumentError):
        driver.submit(put(request_id="x" * (REQUEST_ID_MAX_CHARS + 1)))


def test_a_set_of_tasks_is_zero_to_n_of_its_connector(driver: Driver) -> None:
    driver.submit(put())
    bad = PutTaskConfigs(
        call_id="call",
        request_id="id",
        writer_epoch=7,
        connector="c",
        task_configs=[(TaskId("c", 0), {}), (TaskId("d", 0), {}), (TaskId("c", 3), {})],
    )
    with pytest.raises(InvalidArgumentError) as error:
        driver.submit(bad)
    assert [violation.field for violation in error.value.violations] == [
        "task_configs[1].task",
        "task_configs[1].task",
        "task_configs[2].task",
    ]


def test_a_config_is_at_most_one_mebibyte(driver: Driver) -> None:
    overhead = len('{"properties":{"a":""}}')
    driver.submit(put(config={"a": "x" * (VALUE_MAX_BYTES - overhead)}))
    with pytest.raises(InvalidArgumentError) as error:
        driver.submit(put(config={"a": "x" * (VALUE_MAX_BYTES - overhead + 1)}))
    assert error.value.reason is Reason.TOO_LARGE
    with pytest.raises(InvalidArgumentError) as error:
        driver.submit(put_tasks([{}, {"a": "x" * VALUE_MAX_BYTES}]))
    assert error.value.violations[0].field == "task_configs[1].config"
    assert len(driver.log) == 1


# repeated requests


def _repeated(event: ConfigRequest) -> ConfigRequest:
    """The same request on another call."""
    return dataclasses.replace(event, call_id=fresh_id())


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "event",
    [
        put(config={"a": "2"}, expected_revision=2),
        put("new", initial_state=TargetState.PAUSED, expected_revision=0),
        delete(),
        put_tasks([{"t": "0"}, {"t": "1"}]),
        put_tasks([]),
        put_state(TargetState.PAUSED),
        restart(),
    ],
    ids=["put", "create", "delete", "tasks", "no tasks", "state", "restart"],
)
def test_a_repeated_request_is_answered_as_the_first_was(
    driver: Driver, event: ConfigRequest, restarted: bool
) -> None:
    driver.submit(put("before"))
    driver.submit(put())
    first = driver.submit(event)
    if not isinstance(event, DeleteConnector):
        driver.submit(put_state(TargetState.STOPPED))
    length = len(driver.log)
    if restarted:
        driver.restart()
    assert driver.submit(_repeated(event)) == first
    assert len(driver.log) == length


def test_a_repeat_needs_neither_the_revision_nor_the_connector(driver: Driver) -> None:
    create = put(expected_revision=0)
    first = driver.submit(create)
    driver.submit(delete())
    assert driver.submit(_repeated(create)) == first


def test_a_failed_request_may_be_repeated_and_succeed(driver: Driver) -> None:
    event = put_state(TargetState.PAUSED)
    with pytest.raises(NotFoundError):
        driver.submit(event)
    driver.submit(put())
    assert driver.submit(_repeated(event)) == WriteAnswer(end_offset=2)


def test_an_append_that_failed_leaves_nothing_behind(driver: Driver) -> None:
    event = put()
    assert driver.machine.handle(event, 0).records
    driver.machine.validate()
    assert driver.machine.snapshot().connectors == {}
    assert driver.submit(_repeated(event)) == WriteAnswer(end_offset=1, revision=1)


def test_the_same_id_under_another_name_is_another_request(driver: Driver) -> None:
    driver.submit(put("a", request_id="same"))
    assert driver.submit(put("b", request_id="same")).revision == 2
    assert set(driver.machine.snapshot().connectors) == {"a", "b"}


def test_the_last_thousand_requests_are_remembered(driver: Driver) -> None:
    driver.submit(put())
    events = [put_state(TargetState.PAUSED) for _ in range(REMEMBERED_REQUESTS + 1)]
    answers = [driver.submit(event) for event in events]
    length = len(driver.log)
    for _ in range(2):
        assert driver.submit(_repeated(events[1])) == answers[1]
        assert driver.submit(_repeated(events[-1])) == answers[-1]
        assert len(driver.log) == length
        driver.restart()
    assert driver.submit(_repeated(events[0])) != answers[0]


# loading


def test_a_restart_finds_the_same_state(driver: Driver) -> None:
    driver.submit(put("a", {"x": "1"}, initial_state=TargetState.PAUSED))
    driver.submit(put_tasks([{"t": "0"}], "a"))
    driver.submit(put("a", {"x": "2"}))
    driver.submit(put("b"))
    driver.submit(delete("b"))
    before = driver.machine.snapshot()
    events = driver.machine.history.read(0)
    driver.restart()
    assert driver.machine.snapshot() == before
    assert driver.machine.history.read(0) == events


def test_uncommitted_task_configs_count_for_the_offset_only(driver: Driver) -> None:
    driver.submit(put())
    driver.append_foreign(("task-c-0", '{"properties":{}}'))
    driver.restart()
    snapshot = driver.machine.snapshot()
    assert snapshot.end_offset == 2
    assert snapshot.task_configs == {}


def test_a_tail_that_is_not_known_ends_the_history() -> None:
    machine = ConfigMachine()
    machine.loaded(0, 5)
    assert machine.end_offset == 5
    assert machine.history.start_offset == 5


def test_large_sets_weigh_on_the_history() -> None:
    history = ChangeBuffer[ConfigEvent](max_bytes=20_000)
    driver: Driver = LogMachineDriver(lambda: ConfigMachine(history), encode, decode)
    driver.submit(put())
    driver.submit(put_tasks([{"t": "x" * 15_000}]))
    assert len(driver.machine.history.read(0)) == 2
    driver.submit(put_tasks([{"t": "y" * 15_000}]))
    (event,) = driver.machine.history.read(driver.machine.history.start_offset)
    assert isinstance(event.change, TaskConfigsUpdated)
