import time

from drover.api.connect.v1 import connect_service_pb2 as pb
from examples.flights.follower import StatusFollower

OLD, NEW = "127.0.0.1:1", "127.0.0.1:2"


def event(state: str, worker_id: str, *, removed: bool = False) -> pb.WatchStatusesResponse:
    task = pb.TaskState(
        task=0, state=pb.RunState.Value(f"RUN_STATE_{state}"), worker_id=worker_id, trace="a\nb\n"
    )
    return pb.WatchStatusesResponse(
        status=pb.ConnectorStatus(name="sink", tasks=[task]), removed=removed
    )


def test_the_present_status_is_the_last_one() -> None:
    follower = StatusFollower([])
    assert follower.task("sink") is None
    follower.note(event("UNASSIGNED", ""))
    follower.note(event("RUNNING", OLD))
    change = follower.task("sink")
    assert change is not None
    assert (change.state, change.worker_id, change.cause) == ("RUNNING", OLD, "a")
    assert follower.tasks_of(OLD) == [("sink-0", "RUNNING")]
    assert follower.tasks_of(OLD, since_s=time.monotonic()) == []
    assert follower.tasks_of(NEW) == []
    follower.note(event("RUNNING", OLD, removed=True))
    assert follower.task("sink") is None


def test_what_the_lost_worker_said_is_no_hand_over() -> None:
    follower = StatusFollower([])
    follower.note(event("RUNNING", OLD))
    killed_s = time.monotonic()
    follower.note(event("RUNNING", OLD))
    assert follower.running_since("sink", killed_s, lost_worker_id=OLD) is None
    follower.note(event("UNASSIGNED", OLD))
    assert follower.running_since("sink", killed_s, lost_worker_id=OLD) is None
    follower.note(event("RUNNING", NEW))
    change = follower.running_since("sink", killed_s, lost_worker_id=OLD)
    assert change is not None
    assert change.worker_id == NEW


def test_a_task_may_come_back_to_its_worker() -> None:
    follower = StatusFollower([])
    follower.note(event("RUNNING", OLD))
    killed_s = time.monotonic()
    follower.note(event("UNASSIGNED", OLD))
    follower.note(event("RUNNING", OLD))
    change = follower.running_since("sink", killed_s, lost_worker_id=OLD)
    assert change is not None
    assert change.worker_id == OLD
