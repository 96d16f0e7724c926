"""All pages and forms of the console, over one secured cluster that has something on each."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from drover.client import ConnectClient
from drover.model.ids import TaskId
from drover.security.development_ca import init_certificates
from drover.security.principal import Grant, Principal, Role
from drover_gateway.console import (
    config_form_page,
    connector_history_page,
    connector_offsets_page,
    connector_page,
    connectors_page,
    frame,
    letter_groups,
    loggers_page,
    plugins_page,
    workers_page,
)
from drover_gateway.console.actions import ACTIONS
from drover_gateway.console.application import ConsoleApplication
from drover_gateway.console.sessions import Sessions
from tests.support.fake_engine import SINK, SOURCE
from tests.support.gateways import TOKENS, RunningGateway, grant_tokens, running_gateway
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.web_tokens import KEY, jwks, signed
from tests.support.worker_cluster import RunningWorker, WorkerCluster

SCRIPT = "<script>window.isHacked=1</script><img src=x onerror=window.isHacked=1>"
KEYS = "k" * 32
#: A caller whose token is valid, and who has no grant.
STRANGER = "stranger"
ROLES = (*TOKENS, STRANGER)
FAILED, STOPPED, HOSTILE = "b-failed", "a-stopped", f"h{SCRIPT}"
CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
#: What a worker answers for a caller without the role.
NEEDS = "needs the role {}"


def principal_of(role: str) -> Principal:
    """The caller that signs in as a role."""
    grants = () if role == STRANGER else (Grant(Role[role.upper()]),)
    return Principal(role, grants)


def token_of(role: str) -> str:
    """The token of a role."""
    return signed(sub="nobody", groups=None) if role == STRANGER else TOKENS[role]


def routes(method: str) -> frozenset[str]:
    """The paths of the console's pages with a method, as the application has them."""
    nothing = cast("Any", None)
    console = ConsoleApplication(nothing, nothing, Sessions(), asyncio.Event())
    return frozenset(path for way, path in console.routes if way == method)


# pages


@dataclass(frozen=True, slots=True)
class Place:
    """A page.

    Attributes:
        path: Its path.
        query: Its query.
        role: The role that it needs; None if it needs no token.
        status: The status for a caller who has the role.
    """

    path: str
    query: Mapping[str, str]
    role: Role | None = Role.VIEWER
    status: int = 200

    @property
    def url(self) -> str:
        """The path and the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def status_for(self, role: str) -> int:
        """The status for a caller with a role."""
        if self.role is None or principal_of(role).may(self.role):
            return self.status
        return 403


def _place(path: str, role: Role | None = Role.VIEWER, status: int = 200, /, **query: str) -> Place:
    return Place(path, query, role, status)


_CONNECTOR, _TOPIC, _LETTERS = frame.CONNECTOR, frame.TOPIC, frame.DEAD_LETTERS
_EDIT, _NEW = config_form_page.EDIT, config_form_page.NEW
#: The states of pages that need a query. Each other route is visited without one.
PLACES: Sequence[Place] = (
    _place(frame.CONNECTORS),
    _place(frame.CONNECTORS, q="nothing"),
    _place(frame.CONNECTORS, state="failed", sort="name"),
    *(
        _place(_CONNECTOR, name=name, tab=tab)
        for name in (FAILED, STOPPED)
        for tab in connector_page.TABS
        if (name, tab) != (STOPPED, "dead-letters")
    ),
    *(_place(_CONNECTOR, name=HOSTILE, tab=tab) for tab in ("overview", "config", "history")),
    _place(_CONNECTOR, Role.ADMIN, name=STOPPED, tab="history", revision="{revision}"),
    _place(_CONNECTOR, Role.VIEWER, 404, name="nothing"),
    _place(_CONNECTOR, None, 404, name=FAILED, tab="nothing"),
    _place(_NEW, Role.OPERATOR),
    _place(_NEW, Role.OPERATOR, **{"class": SOURCE}),
    _place(_NEW, Role.OPERATOR, **{"class": SOURCE, "notation": "yaml"}),
    _place(_EDIT, Role.OPERATOR, name=STOPPED),
    _place(_EDIT, Role.OPERATOR, name=HOSTILE, notation="json"),
    _place(frame.TOPICS),
    _place(frame.TOPICS, q="nothing"),
    _place(_TOPIC, name="b-topic"),
    _place(_TOPIC, name="b-topic", partition="0", offset="0", count="1"),
    _place(_TOPIC, name="b-topic", follow="yes"),
    _place(_TOPIC, name="b-topic", where="="),
    _place(_TOPIC, Role.VIEWER, 404, name="no-such-topic"),
    _place(_LETTERS),
    _place(_LETTERS, connector=FAILED),
    _place(_LETTERS, connector=FAILED, stage="TASK_PUT", cause=f"Data{SCRIPT}Error"),
    _place(_LETTERS, connector=FAILED, letter="0:0"),
    _place(letter_groups.PROGRESS, connector=FAILED, ranges="0:0-1", ends="0:1"),
    _place(frame.PLUGIN, **{"class": SOURCE}),
    _place(frame.PLUGIN, Role.VIEWER, 404, **{"class": SCRIPT}),
    _place(frame.AUDIT, Role.ADMIN),
    _place(frame.AUDIT, Role.ADMIN, caller=SCRIPT),
    _place(frame.SIGN_IN, None),
    _place(frame.SIGN_IN, None, refused="yes"),
    _place("/ui/no-such-page", None, 404),
)


def places() -> Iterator[Place]:
    """Every page of the application, so that a new one is visited too."""
    yield from PLACES
    known = {each.path for each in PLACES}
    yield from (_place(each) for each in sorted(routes("GET") - known))


# forms


@dataclass(frozen=True, slots=True)
class Sent:
    """A form that is sent by hand.

    Attributes:
        path: Where it is sent.
        rpc: The call of ConnectService that it needs.
        role: The role of this call.
        fields: Its fields.
    """

    path: str
    rpc: str
    role: Role
    fields: Mapping[str, str]


_LETTER = {"connector": FAILED, "letter": "0:0", "reason": "wrong", "request_id": "1"}
_OFFSET = {"partition": "%7B%22f%22%3A1%7D", "before": "", "after": "%7B%22at%22%3A1%7D"}
_CONFIG = {"connector": "new", "known": STOPPED, "config": "{}", "notation": "json"}
_CONFIG |= {"text": '{"connector.class": "x"}', "revision": "1"}


def _sent(path: str, rpc: str, role: Role, /, **fields: str) -> Sent:
    return Sent(path, rpc, role, fields)


#: Forms that act, with each of their actions.
FORMS: Sequence[Sent] = (
    *(
        _sent(
            path,
            each.rpc,
            Role.ADMIN if each.key == "delete" else Role.OPERATOR,
            action=each.key,
            name=STOPPED,
        )
        for path in (connectors_page.CONFIRM, connectors_page.RUN)
        for each in ACTIONS.values()
    ),
    *(
        _sent(path, "RestartTask", Role.OPERATOR, name=FAILED, task="0")
        for path in (connector_page.RESTART_TASK, connector_page.RESTART_TASK_RUN)
    ),
    *(
        _sent(path, "AlterConnectorOffsets", Role.ADMIN, name=STOPPED, **_OFFSET)
        for path in (connector_offsets_page.EDIT, connector_offsets_page.EDIT_RUN)
    ),
    _sent(
        connector_offsets_page.MOVE,
        "AlterConnectorOffsets",
        Role.ADMIN,
        name=STOPPED,
        time="2026-01-01",
    ),
    *(
        _sent(path, "SetLoggerLevel", Role.ADMIN, logger="root", level="INFO")
        for path in (loggers_page.CONFIRM, loggers_page.RUN)
    ),
    *(
        _sent(path, "ResetConnectorOffsets", Role.ADMIN, name=STOPPED, digest="x")
        for path in (connector_offsets_page.RESET, connector_offsets_page.RESET_RUN)
    ),
    _sent(
        connector_history_page.ROLLBACK,
        "RollbackConnector",
        Role.ADMIN,
        name=STOPPED,
        revision="1",
        expected="1",
    ),
    *(
        _sent(path, rpc, role, do=button, **_CONFIG)
        for path, write in ((_NEW, "CreateConnector"), (_EDIT, "PutConnectorConfig"))
        for button, rpc, role in (
            ("validate", "ValidateConfig", Role.OPERATOR),
            ("preview", "PreviewConnector", Role.ADMIN),
            ("plan", "PlanConnectorConfig", Role.ADMIN),
            ("apply", write, Role.ADMIN),
        )
    ),
    *(
        _sent(path, rpc, Role.OPERATOR, action=action, **_LETTER)
        for path in (letter_groups.CHECK, letter_groups.RUN)
        for rpc, action in (
            ("ReplayDeadLetters", letter_groups.REPLAY),
            ("DiscardDeadLetters", letter_groups.DISCARD),
        )
    ),
    *(
        _sent(path, each.rpc, Role.OPERATOR, action=each.key, worker="{worker}")
        for path in (workers_page.CONFIRM, workers_page.RUN)
        for each in workers_page.ACTIONS.values()
    ),
    *(
        _sent(path, "ReloadPlugins", Role.OPERATOR, worker="{worker}")
        for path in (plugins_page.CONFIRM, plugins_page.RUN)
    ),
)
#: Forms that each caller may send.
FREE_FORMS = frozenset({frame.SIGN_IN, frame.SIGN_OUT, frame.THEME})
_BY_ACTION: Mapping[tuple[str, str], Sent] = {
    (each.path, each.fields.get("action") or each.fields.get("do") or ""): each for each in FORMS
}


def needed(path: str, value: str) -> Role | None:
    """The role that a button of a form needs; ``value`` is that of its action, if it has one."""
    if path in FREE_FORMS:
        return None
    found = _BY_ACTION.get((path, value)) or _BY_ACTION.get((path, ""))
    if found is None and path in (_NEW, _EDIT):
        # a change of the notation or of the shown settings
        return Role.OPERATOR
    assert found is not None, f"add {path} with the action {value!r} to FORMS"
    return found.role


# the cluster


@dataclass
class World:
    """The cluster and a gateway in front of it."""

    cluster: WorkerCluster
    gateway: RunningGateway
    worker: RunningWorker
    revision: str = ""

    def filled(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Fields, with the values of this cluster."""
        own = {"{worker}": self.worker.address, "{revision}": self.revision}
        return {key: own.get(value, value) for key, value in fields.items()}

    def url(self, place: Place) -> str:
        """The path and the query of a place."""
        return Place(place.path, self.filled(place.query)).url

    async def put(self, name: str, config: Mapping[str, str]) -> Any:
        """Write a config as an admin."""
        path = f"/connectors/{quote(name, safe='')}/config"
        found = await self.gateway.ask("PUT", path, role="admin", json=dict(config))
        assert found.ok, found.text
        return found.json()

    async def until_state(self, name: str, state: str, *, of_task: bool = False) -> None:
        """Wait for a state of a connector, or of its tasks."""
        path = f"/connectors/{quote(name, safe='')}/status"

        async def is_there() -> bool:
            status = (await self.gateway.ask("GET", path, role="admin")).json()
            parts = status.get("tasks", ()) if of_task else [status.get("connector", {})]
            return any(each.get("state") == state for each in parts)

        await wait_until_async(is_there)

    async def set_state(self, name: str, verb: str, state: str) -> None:
        """Pause, resume or stop a connector."""
        await self.gateway.ask("PUT", f"/connectors/{name}/{verb}", role="admin")
        await self.until_state(name, state)

    def store_letters(self, count: int) -> None:
        """Add dead letters of the failed connector."""
        about = {"stage": "TASK_PUT", "exception.class.name": f"Data{SCRIPT}Error"}
        about |= {"exception.message": SCRIPT, "connector.name": FAILED}
        about |= {"exception.stacktrace": f"Traceback\n{SCRIPT}"}
        headers = [(f"__connect.errors.{key}", text.encode()) for key, text in about.items()]
        letter = {"key": SCRIPT.encode(), "value": b'{"a": [1, 2]}', "headers": headers}
        store_records(self.cluster.store(), "b-dead", [letter] * count)


async def _fill(world: World) -> None:
    record = {"key": SCRIPT.encode(), "value": f'{{"a": "{SCRIPT}"}}'.encode()}
    record |= {"headers": [(SCRIPT, SCRIPT.encode())]}  # type: ignore[dict-item]
    store_records(world.cluster.store(), "b-topic", [record, {"key": b"gone"}, record])
    world.store_letters(3)
    await world.put("a-1", CONFIG)
    await world.put(HOSTILE, {**CONFIG, "topic": SCRIPT})
    broken = {**CONFIG, "connector.class": SINK, "topics": "b-topic"}
    broken |= {"fail.start": f"OSError: {SCRIPT}", "restart.policy": "never"}
    broken |= {"errors.deadletterqueue.topic.name": "b-dead"}
    await world.put(FAILED, broken)
    await world.put(STOPPED, CONFIG)
    await world.until_state(STOPPED, "RUNNING", of_task=True)
    await world.until_state(FAILED, "FAILED", of_task=True)
    owners = (
        engine
        for each in world.cluster.workers
        for engine in each.engines.values()
        if TaskId(STOPPED, 0) in engine.running_tasks
    )
    engine = next(owners)
    call = engine.commit(TaskId(STOPPED, 0), '{"file":"a"}', '{"at":5}')
    await wait_until_async(lambda: call in engine.commit_results)
    await world.set_state(STOPPED, "stop", "STOPPED")
    await world.put(STOPPED, {**CONFIG, "topic": SCRIPT})


@asynccontextmanager
async def walked_world(directory: Path) -> AsyncIterator[World]:
    """Two workers with an access file, a gateway, and something to see on each page."""
    certificates = directory / "certificates"
    init_certificates(certificates)
    grant_tokens(certificates)
    keys = directory / "keys.json"
    keys.write_text(jwks(one=KEY))
    async with WorkerCluster(directory, certificates=certificates) as cluster:
        workers = await cluster.settled_workers(2, jwks=str(keys), jwt_audience="drover")
        async with running_gateway(
            [each.address for each in workers],
            certificates=certificates,
            gateway_session_keys=KEYS,
        ) as gateway:
            world = World(cluster, gateway, workers[0])
            await _fill(world)
            world.revision = await _first_revision(world)
            yield world


async def _first_revision(world: World) -> str:
    """The revision of the first config of the stopped connector."""
    channel = world.worker.channel
    assert channel is not None
    client = ConnectClient(channel)
    history = await client.get_connector_history(STOPPED)
    return str(min(each.revision for each in history if each.HasField("config_version")))
