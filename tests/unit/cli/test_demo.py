"""How the demo ends, without a cluster; tests/e2e/test_demo.py runs the whole demo."""

import time
from pathlib import Path

import pytest
from rich.console import Console

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import Reason, UnavailableError
from drover.local.java_check import Java
from examples.flights import __main__ as demo
from examples.flights.dataset import load_dataset
from examples.flights.flow import MonthTotals
from examples.flights.run import (
    DeadLetter,
    DemoFailedError,
    DemoOptions,
    DemoResult,
    DemoRun,
    Handover,
)
from examples.flights.view import DemoView

SAMPLE = Path(__file__).parents[2] / "data" / "flights_sample.csv"
HANDOVER = Handover(
    task="flights-sink-0",
    killed="worker-1",
    new_worker="worker-2",
    tree_gone_s=0.2,
    running_s=1.5,
    flowing_s=2.25,
)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(demo, "_SAMPLE", SAMPLE)
    monkeypatch.setattr(demo, "find_java", lambda: Java(Path("java"), 17))
    return tmp_path


def ends_with(outcome: DemoResult | BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_self: DemoRun) -> DemoResult:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(DemoRun, "run", run)


def test_a_good_run_shows_the_hand_over_and_leaves_nothing(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    may = {"2013-05": MonthTotals(328_521, 350_217_607, 49_326_610, 7)}
    letter = DeadLetter("flights.csv:562", "has 5 columns, not 19", "2013,3,1,517,515")
    result = DemoResult(
        336_781, 328_521, 640, 50.0, may, may, "abc", [letter], handovers=[HANDOVER]
    )
    ends_with(result, monkeypatch)
    assert demo.main(["--sample"]) == 0
    out = capsys.readouterr().out
    for fact in (
        "worker-2",
        "2.2 s",
        "328,521 in 640",
        "8,259 cancelled",
        "flights.csv:562",
        "abc",
    ):
        assert fact in out
    assert list((workplace / ".drover").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DemoFailedError("line 5 differs"), "FAILED: line 5 differs"),
        (ExceptionGroup("g", [DemoFailedError("stuck")]), "FAILED: stuck"),
        (UnavailableError(Reason.LEADER_UNKNOWN, "no leader"), "FAILED: no leader (LEADER_UNKN"),
        (OSError(28, "No space left on device", "in.csv"), "FAILED: in.csv: No space left"),
    ],
)
def test_a_bad_run_gives_the_reason_and_keeps_the_logs(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    reason: str,
) -> None:
    ends_with(error, monkeypatch)
    assert demo.main(["--sample"]) == 1
    out = capsys.readouterr().out
    assert reason in out
    assert "the logs are in .drover/run-1/logs" in out
    assert (workplace / ".drover" / "run-1").is_dir()


def test_runs_get_directories_of_their_own(tmp_path: Path) -> None:
    names = [demo.new_run_directory(tmp_path).name for _ in range(3)]
    assert names == ["run-1", "run-2", "run-3"]


@pytest.mark.parametrize("arguments", [["--feed-s", "0"], ["--feed-s", "soon"], ["--what"]])
def test_misuse_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        demo.parse_arguments(arguments)
    assert caught.value.code == 2


def test_the_environment_sets_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_DEMO_FEED_S", "2.5")
    monkeypatch.setenv("DROVER_DEMO_SAMPLE", "1")
    parsed = demo.parse_arguments([])
    assert (parsed.feed_s, parsed.sample) == (2.5, True)
    monkeypatch.setenv("DROVER_DEMO_SAMPLE", "0")
    assert not demo.parse_arguments([]).sample


def run_of(tmp_path: Path, *, stuck_s: float) -> DemoRun:
    dataset = load_dataset(tmp_path, SAMPLE, use_sample=True)
    return DemoRun(DemoOptions(tmp_path, dataset, stuck_s=stuck_s), DemoView(Console(quiet=True)))


async def test_a_run_where_nothing_moves_is_stuck_and_says_what_it_waited_for(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, stuck_s=0.2)
    with pytest.raises(DemoFailedError, match="stuck: waited for all rows to arrive") as caught:
        await run._wait(lambda: None, "all rows to arrive")
    assert "0 of 3,286 rows arrived" in str(caught.value)
    assert "flights-sink-0 has no status" in str(caught.value)


async def test_a_task_that_stays_failed_ends_the_run_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, stuck_s=30)
    task = pb.TaskState(task=0, state=pb.RUN_STATE_FAILED, trace="Traceback\nOSError: full\n")
    status = pb.ConnectorStatus(name="flights-sink", tasks=[task])
    run._follower.note(pb.WatchStatusesResponse(status=status))
    later_s = time.monotonic() + 60
    monkeypatch.setattr("examples.flights.run.time.monotonic", lambda: later_s)
    with pytest.raises(DemoFailedError, match="flights-sink-0 failed: OSError: full"):
        await run._wait(lambda: None, "rows")
