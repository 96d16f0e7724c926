"""A source that idles over a system of which some calls fail."""

import time
from collections.abc import Mapping, Sequence

import pytest

from drover.config.config_def import ConfigDef
from drover.connector import (
    RetriableError,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from drover_worker.engine.tasks.source_runner import SourceRunner
from tests.unit.engine.runner_world import World


class Flaky(SourceTask):
    """Every second call fails; the others find nothing new."""

    calls = 0

    def start(self, context: SourceTaskContext) -> None: ...

    def poll(self) -> SourceBatch | None:
        Flaky.calls += 1
        if Flaky.calls % 2:
            raise RetriableError("the API answers 500")
        return None


class FlakySource(SourceConnector):
    task_class = Flaky

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


def test_a_source_without_new_data_does_not_stop_itself_over_a_flaky_api(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    runner = world.runner(SourceRunner, FlakySource, {"errors.retry.timeout": "20000"})
    pauses = []
    for _ in range(100):
        pause_s = runner.run_once()
        assert not world.kinds, "the task has not failed"
        if Flaky.calls % 2:
            pauses.append(pause_s)
        now_s[0] += 10
    assert set(pauses) == {0.3}, "each call that succeeds ends the retries before it"
