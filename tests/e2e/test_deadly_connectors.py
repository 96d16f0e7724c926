"""Connectors that end or block their engine are named, and the others keep running."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import AlreadyExistsError, DeadlineExceededError, InvalidArgumentError
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.deadly_plugins import DeadlySink, DeadlySource, Noting
from tests.support.plugins_for_tests import plugin
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(3_000),
    pytest.mark.faults("engine"),
]

GOOD_COUNT = 10
#: Covers several engine starts one after another on a busy machine.
NAMED_TIMEOUT_S = 900.0
RESTARTS_MAX = 2
CULPRIT = "in quarantine"


class Fleet:
    """Good connectors, which note each start of their task, beside bad ones."""

    def __init__(self, cluster: EmbeddedCluster, client: ConnectClient, directory: Path) -> None:
        self._cluster = cluster
        self._client = client
        self._directory = directory
        self.good: list[str] = []

    async def create_good(self, count: int) -> None:
        for number in range(count):
            name = f"good-{number}"
            config = {"connector.class": plugin(Noting), "starts": str(self._directory / name)}
            await self._create(name, config)
            self.good.append(name)
        for name in self.good:
            await self._cluster.wait_for_task(name)

    async def create_bad(self, name: str, how: str, where: str = "poll", **others: str) -> None:
        kind = DeadlySink if where == "write" else DeadlySource
        topics = {"topics": "lines"} if where == "write" else {}
        config = {"connector.class": plugin(kind), "how": how, "where": where, **topics, **others}
        await self._create(name, config)

    async def _create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector; a busy engine may abandon its validation or answer too late, which is
        then repeated.
        """
        may_exist = False

        async def is_created() -> bool:
            nonlocal may_exist
            try:
                await self._client.create_connector(name, config)
            except InvalidArgumentError as error:
                texts = [each.description for each in error.violations]
                assert all("was abandoned" in text for text in texts), texts
                return False
            except DeadlineExceededError:
                may_exist = True
                return False
            except AlreadyExistsError:
                assert may_exist
            return True

        await wait_until_async(is_created, timeout_s=NAMED_TIMEOUT_S)

    def starts(self) -> dict[str, int]:
        return {name: len((self._directory / name).read_text().splitlines()) for name in self.good}

    async def states(self, name: str) -> list[pb.ConnectorState | pb.TaskState]:
        status = await self._client.get_connector_status(name)
        return [status.connector, *status.tasks]

    async def wait_until_named(self, names: Collection[str], *, stopped: bool) -> None:
        """Wait until the statuses of bad connectors show why they are isolated."""
        shown: dict[str, list[str]] = {}

        async def named() -> bool:
            for name in names:
                states = await self.states(name)
                shown[name] = [str(each) for each in states]
                found = [each for each in states if CULPRIT in each.trace.split("\n")[0]]
                if not found:
                    return False
                if stopped and not any(each.failures.no_restart_reason for each in found):
                    return False
            return True

        await wait_until_async(named, timeout_s=NAMED_TIMEOUT_S, describe=lambda: shown)

    async def assert_good_ones_run(self, before: dict[str, int], *, restarts_max: int) -> None:
        for name in self.good:
            await self._cluster.wait_for_task(name)
            for each in await self.states(name):
                assert each.state == pb.RUN_STATE_RUNNING, each
                assert CULPRIT not in each.trace, f"{name} is accused: {each.trace}"
        restarts = {name: count - before[name] for name, count in self.starts().items()}
        assert max(restarts.values()) <= restarts_max, restarts

    async def wait_until_running(self, name: str) -> None:
        await self._cluster.wait_for_task(name)


@asynccontextmanager
async def fleet(directory: Path, good_count: int = GOOD_COUNT) -> AsyncIterator[Fleet]:
    env = {
        "DROVER_PLUGIN_MODULES": "tests.support",
        "DROVER_PLUGIN_POLL_TIMEOUT_MS": "10000",
        "DROVER_PLUGIN_STOP_TIMEOUT_MS": "2000",
    }
    async with embedded_cluster(directory, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            world = Fleet(cluster, client, directory)
            await world.create_good(good_count)
            yield world


async def test_a_connector_that_exits_in_poll_is_named_and_stopped(tmp_path: Path) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        await world.create_bad("tickets", "exit")
        await world.wait_until_named(["tickets"], stopped=True)
        await world.assert_good_ones_run(before, restarts_max=RESTARTS_MAX)
        (task,) = (await world.states("tickets"))[1:]
        assert "exit code 3" in task.trace
        assert "a connector ended the engine repeatedly" in world._cluster.log("worker-1")


@pytest.mark.parametrize(
    ("how", "where"),
    [
        ("segfault", "poll"),
        ("abort", "poll"),
        ("kill", "poll"),
        ("exit with 0", "start"),
        ("exit a second later", "poll"),
        ("exit with the code of a missing Java", "poll"),
        ("close all descriptors", "poll"),
        ("spin", "poll"),
        ("sleep with the interpreter lock", "poll"),
    ],
)
async def test_a_connector_that_ends_the_engine_is_named(
    how: str, where: str, tmp_path: Path
) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        await world.create_bad("tickets", how, where)
        await world.wait_until_named(["tickets"], stopped=False)
        await world.assert_good_ones_run(before, restarts_max=RESTARTS_MAX)


async def test_a_sink_that_exits_in_write_is_named(tmp_path: Path) -> None:
    async with fleet(tmp_path) as world:
        lines = tmp_path / "lines.txt"
        lines.write_text("a\nb\n")
        source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"}
        await world._create("lines", source)
        await world.wait_until_running("lines")
        before = world.starts()
        await world.create_bad("tickets", "exit", "write")
        await world.wait_until_named(["tickets"], stopped=False)
        await world.assert_good_ones_run(before, restarts_max=RESTARTS_MAX)


CHANGES = {
    "clear sys.path": "sys.path",
    "clear sys.modules": "sys.modules",
    "clear os.environ": "os.environ",
    "delete the working directory": "the working directory",
    "change the process": "the recursion limit",
    "silence the log": "logging.disable",
    "lower limits": "RLIMIT_NOFILE",
}


async def test_connectors_that_change_the_process_are_named_and_disturb_nothing(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        names = {f"odd-{number}": how for number, how in enumerate(CHANGES)}
        for name, how in names.items():
            await world.create_bad(name, how)
        shown: dict[str, str] = {}

        async def named() -> bool:
            for name in names:
                tasks = (await world._client.get_connector_status(name)).tasks
                shown[name] = "".join(each.activity.process_change for each in tasks)
            return all(CHANGES[how] in shown[name] for name, how in names.items())

        await wait_until_async(named, timeout_s=NAMED_TIMEOUT_S, describe=lambda: shown)
        config = {"connector.class": plugin(Noting), "starts": str(tmp_path / "later")}
        await world._create("later", config)
        await world.wait_until_running("later")
        await world.assert_good_ones_run(before, restarts_max=0)
        for name in world.good:
            (task,) = (await world._client.get_connector_status(name)).tasks
            assert not task.activity.process_change, f"{name} is accused"


@pytest.mark.parametrize(
    "deeds",
    [
        ["fork", "fork often", "close stdout", "close sys.stdout"],
        ["start threads", "replace sys.stdout", "ignore SIGTERM"],
    ],
    ids=["fork or close stdout", "start threads or ignore signals"],
)
async def test_connectors_that_fork_or_start_threads_disturb_nothing(
    deeds: list[str], tmp_path: Path
) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        for number, how in enumerate(deeds):
            await world.create_bad(f"odd-{number}", how)
        for number in range(len(deeds)):
            await world.wait_until_running(f"odd-{number}")
        config = {"connector.class": plugin(Noting), "starts": str(tmp_path / "later")}
        await world._create("later", config)
        await world.wait_until_running("later")
        await world.assert_good_ones_run(before, restarts_max=0)
        # the forked processes share the connections to the JVM
        assert "Py4JNetworkError" not in world._cluster.log("worker-1")


async def test_a_connector_that_uses_up_its_own_engines_memory_fails_alone(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        limits = {"engine": "own", "engine.memory": "1g"}
        await world.create_bad("greedy", "allocate", **limits)
        shown: list[str] = []

        async def failed() -> bool:
            shown[:] = [each.trace for each in await world.states("greedy")]
            return any("memory" in trace for trace in shown)

        await wait_until_async(failed, timeout_s=NAMED_TIMEOUT_S, describe=lambda: shown)
        await world.assert_good_ones_run(before, restarts_max=0)


@pytest.mark.parametrize("where", ["start", "poll", "stop"])
async def test_a_connector_that_hangs_fails_alone(where: str, tmp_path: Path) -> None:
    async with fleet(tmp_path) as world:
        before = world.starts()
        await world.create_bad("stuck", "hang", where)
        if where == "stop":
            await world.wait_until_running("stuck")
            await world._client.delete_connector("stuck")
        else:

            async def failed() -> bool:
                return any(each.failures.failure_count for each in await world.states("stuck"))

            await wait_until_async(failed, timeout_s=NAMED_TIMEOUT_S)
        await world.assert_good_ones_run(before, restarts_max=0)


async def test_of_twenty_connectors_three_end_the_engine(tmp_path: Path) -> None:
    bad = {"exits": "exit", "crashes": "segfault", "aborts": "abort"}
    async with fleet(tmp_path, good_count=17) as world:
        before = world.starts()
        for name, how in bad.items():
            await world.create_bad(name, how)
        await world.wait_until_named(bad, stopped=True)
        await world.assert_good_ones_run(before, restarts_max=RESTARTS_MAX + 2 * len(bad))
