"""The pages about the cluster: workers, rebalances, plugins and audit events."""

import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from drover.api.engine.v1 import engine_pb2
from drover.security.development_ca import init_certificates
from drover_gateway.console import loggers_page, plugins_page, workers_page
from drover_worker.admin import every_worker
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page, PageForm
from tests.support.fake_engine import SOURCE
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "2"}
SCRIPT = "<img src=x onerror=alert(1)>"
PAGES = ("/ui/workers", "/ui/rebalances", "/ui/plugins", "/ui/loggers", "/ui/audit")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerCluster]:
    """Two workers that wait longer for each other than usual, for a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(every_worker, "_WORKER_TIMEOUT_S", 15.0)
        patch.setattr(every_worker, "_LEADER_TIMEOUT_S", 18.0)
        async with WorkerCluster(tmp_path_factory.mktemp("cluster-pages")) as running:
            await running.settled_workers(2)
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(cluster: WorkerCluster) -> AsyncIterator[RunningGateway]:
    async with running_gateway([each.address for each in cluster.workers]) as running:
        path = f"/connectors/{quote(SCRIPT, safe='')}/config"
        assert (await running.ask("PUT", path, json=CONFIG)).status_code == 201
        await cluster.running(SCRIPT, 2, *cluster.workers)
        await cluster.settled(*cluster.workers)
        yield running


@pytest.fixture
def console(gateway: RunningGateway) -> ConsoleClient:
    return ConsoleClient(gateway)


async def shown(console: ConsoleClient, path: str, *texts: str, times: int = 1) -> Page:
    """A page, once it has each of these texts so many times: a rebalance may be in progress."""
    found: list[Page] = []

    async def has_them() -> bool:
        found.append(await console.get(path))
        return all(found[-1].text.count(each) >= times for each in texts)

    await wait_until_async(has_them, describe=lambda: found[-1].text)
    return found[-1]


async def asked_about(
    console: ConsoleClient, form: PageForm, worker_id: str, action: str, text: str
) -> Page:
    """The page before a worker is drained or resumed, once it has a text."""
    found: list[Page] = []
    fields = [form.fields[0], ("worker", worker_id), ("action", action)]

    async def has_it() -> bool:
        found.append(await console.post(workers_page.CONFIRM, fields))
        return text in found[-1].text

    await wait_until_async(has_it)
    return found[-1]


async def test_the_workers_are_listed_with_what_they_use_and_run(
    cluster: WorkerCluster, console: ConsoleClient
) -> None:
    await shown(console, "/ui/workers", "accepts work", f"{SCRIPT} task", times=2)
    # memory and CPU are known after a worker's first seconds
    page = await shown(console, "/ui/workers", "MiB", " cores ")
    assert page.status == 200
    for worker in cluster.workers:
        assert f"{worker.address}" in page.text
    assert re.search(r"\d\.\d\d of \d+ cores (average of its|over the last)", page.text)
    assert "drover worker list" in page.text
    assert "img" not in page.tags


async def test_a_worker_is_drained_and_resumed_after_a_confirmation(
    cluster: WorkerCluster, console: ConsoleClient
) -> None:
    drained, other = cluster.workers
    page = await shown(console, "/ui/workers", "accepts work", times=2)
    forms = [each for each in page.forms if each.action == workers_page.CONFIRM]
    (form,) = [each for each in forms if ("worker", drained.address) in each.fields]
    assert form.buttons == [("action", "drain")]
    asked = await asked_about(
        console, form, drained.address, "drain", f"to {other.address}. Each task stops here"
    )
    assert f"Drain {drained.address}?" in asked.text
    assert f"drover worker drain {drained.address}" in asked.text
    assert "ConnectService/DrainWorker" in asked.text
    # nothing happens before the confirmation
    await shown(console, "/ui/workers", "accepts work", times=2)
    done = await console.submit(asked, workers_page.RUN)
    assert done.url.endswith(f"/ui/workers?worker={quote(drained.address, safe='')}")
    address = done.url.partition("/ui/")[2]
    await shown(console, f"/ui/{address}", f"{drained.address} is drained")
    # another drain would leave no worker
    asked = await asked_about(console, form, other.address, "drain", "the drain will be refused")
    refused = await console.submit(asked, workers_page.RUN)
    assert refused.status == 400
    assert "no other worker" in refused.text.lower()
    again = "accept connectors and tasks again"
    asked = await asked_about(console, form, drained.address, "resume", again)
    await console.submit(asked, workers_page.RUN)
    await shown(console, f"/ui/{address}", f"{drained.address} accepts work.")
    await asked_about(console, form, drained.address, "resume", "nothing will change")
    await cluster.settled(*cluster.workers)


async def test_a_worker_that_is_gone_and_an_unknown_action_are_refused(
    console: ConsoleClient,
) -> None:
    page = await shown(console, "/ui/workers", "accepts work", times=2)
    token = next(e for e in page.forms if e.action == workers_page.CONFIRM).fields[0]
    for fields, status in (
        ([token, ("worker", "w:1"), ("action", "drain")], 404),
        ([token, ("worker", "w:1"), ("action", "explode")], 400),
        ([("worker", "w:1"), ("action", "drain")], 403),
    ):
        found = await console.post(workers_page.CONFIRM, fields)
        assert found.status == status, found.text


async def test_rebalances_have_their_causes_and_moves(console: ConsoleClient) -> None:
    page = await shown(console, "/ui/rebalances", f"{SCRIPT}: started on")
    assert page.status == 200
    assert page.tags.count("svg") == 1
    assert "rect" in page.tags
    assert "drover cluster rebalances" in page.text
    assert "img" not in page.tags
    for number in ("0", "7", "x", "-1"):
        assert (await console.get(f"/ui/rebalances?page={number}")).status == 200


async def test_plugins_are_listed_by_kind_and_lead_to_their_settings(
    console: ConsoleClient,
) -> None:
    page = await console.get("/ui/plugins")
    assert page.status == 200
    assert "Sources (" in page.text
    found = await console.get(f"/ui/plugins?q={quote(SOURCE.lower())}")
    assert SOURCE in found.text
    nothing = await console.get(f"/ui/plugins?q={quote(SCRIPT)}")
    assert "No class matches" in nothing.text
    assert "img" not in nothing.tags
    one = await console.get(f"/ui/plugin?class={quote(SOURCE)}")
    assert one.status == 200
    assert "required" in one.text
    assert "Example" in one.text
    example = json.loads(one.text.rpartition("FILE.json ")[2].partition(" Settings")[0])
    assert example["config"]["connector.class"]
    assert f"drover plugin describe {SOURCE}" in one.text
    assert (await console.get(f"/ui/plugin?class={quote(SCRIPT)}")).status == 404
    assert (await console.get("/ui/plugin")).status == 400


async def test_packages_that_fail_to_load_are_shown_with_the_reason(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with WorkerCluster(tmp_path_factory.mktemp("problems")) as own:
        await own.settled_workers(1)
        engine = own.workers[0].engine
        assert engine is not None
        engine.problems = [
            engine_pb2.PluginProblem(
                package=f"acme-{SCRIPT} 1.2",
                entry_point="Acme = acme.source:Acme",
                message="ImportError: the whole text, for the log",
                shown=f"ImportError: {SCRIPT}",
            )
        ]
        engine.die()
        engine.come_back()
        async with running_gateway([own.workers[0].address]) as gateway:
            page = await shown(ConsoleClient(gateway), "/ui/plugins", "Failed to load")
            expected = (
                f"acme-{SCRIPT} 1.2 Acme = acme.source:Acme ImportError: {SCRIPT} all workers"
            )
            assert expected in page.text
            assert "for the log" not in page.text
            assert "img" not in page.tags


async def test_plugins_are_reloaded_after_a_confirmation(
    cluster: WorkerCluster, console: ConsoleClient
) -> None:
    await cluster.settled(*cluster.workers)
    page = await console.get("/ui/plugins")
    asked = await console.submit(page, plugins_page.CONFIRM, ("worker", ""))
    for worker in cluster.workers:
        assert f"drover plugin reload --worker {worker.address}" in asked.text
    done = await console.submit(asked, plugins_page.RUN)
    assert "2 reloaded, 0 failed." in done.text
    assert done.text.count("no package changed") == 2
    refused = await console.submit(page, plugins_page.CONFIRM, ("worker", "w:1"))
    assert refused.status == 404


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("drover.test.console")
    child = found.getChild("child")
    yield found
    for each in (found, child):
        each.setLevel(logging.NOTSET)


async def test_a_loggers_level_is_set_on_all_workers_after_a_page_with_the_change(
    console: ConsoleClient, logger: logging.Logger
) -> None:
    logger.setLevel(logging.INFO)
    page = await console.get("/ui/loggers?q=drover.test.console")
    assert f"{logger.name} INFO Set" in page.text
    assert "drover logger list --cluster" in page.text
    fields = (("logger", logger.name), ("level", "ERROR"))
    asked = await console.submit(page, loggers_page.CONFIRM, *fields)
    assert f"{logger.name} INFO will be ERROR" in asked.text
    assert f"{logger.name}.child INFO will be ERROR" in asked.text
    assert f"drover logger set {logger.name} ERROR --cluster" in asked.text
    assert logger.level == logging.INFO
    done = await console.submit(asked, loggers_page.RUN)
    assert f"{logger.name} is being set to ERROR on every worker." in done.text
    await wait_until_async(lambda: logger.level == logging.ERROR)
    await shown(console, "/ui/loggers?q=drover.test", f"{logger.name} ERROR")
    again = await console.submit(page, loggers_page.CONFIRM, *fields)
    assert "There is nothing to do." in again.text
    await shown(console, "/ui/audit?call=SetLoggerLevel", "SetLoggerLevel")


async def test_a_change_of_a_logger_that_cannot_be_made_names_the_cause(
    console: ConsoleClient,
) -> None:
    page = await console.get(f"/ui/loggers?q={quote(SCRIPT)}&logger={quote(SCRIPT)}&level=X")
    assert "No logger matches" in page.text
    assert "img" not in page.tags
    for name, level, status, told in (
        (SCRIPT, "DEBUG", 200, "There is no such logger"),
        ("", "DEBUG", 400, "No logger is named"),
        ("root", "LOUD", 400, "Unknown level"),
    ):
        fields = (("logger", name), ("level", level))
        found = await console.submit(page, loggers_page.CONFIRM, *fields)
        assert (found.status, told in found.text) == (status, True), name
        assert "img" not in found.tags
    fields = (("logger", "root"), ("level", "OFF"))
    asked = await console.submit(page, loggers_page.CONFIRM, *fields)
    assert "Loggers without an own level get it too." in asked.text
    token = asked.form(loggers_page.RUN).fields[0]
    refused = await console.post(
        loggers_page.RUN, [token, ("logger", "no.such"), ("level", "DEBUG")]
    )
    assert refused.status == 400
    assert "no logger 'no.such' exists on any worker" in refused.text


async def test_audit_events_are_filtered_by_the_url(console: ConsoleClient) -> None:
    page = await shown(console, "/ui/audit", "PutConnectorConfig")
    assert page.status == 200
    assert "img" not in page.tags
    only = await shown(console, "/ui/audit?call=PutConnectorConfig&since=60", SCRIPT)
    assert "CreateConnector" not in only.text
    assert 'value="PutConnectorConfig"' in only.html
    nothing = await console.get(f"/ui/audit?caller={quote(SCRIPT)}")
    assert "No event matches" in nothing.text
    for query in ("since=x", "since=-5", "outcome=ok", f"call={'x' * 5_000}"):
        assert (await console.get(f"/ui/audit?{query}")).status == 200
    assert (await console.get("/ui/audit?after=nonsense")).status == 400


async def test_pages_of_a_cluster_that_does_not_answer_name_the_cause(
    gateway: RunningGateway,
) -> None:
    async with running_gateway([free_address()]) as alone:
        console = ConsoleClient(alone)
        for path in PAGES:
            page = await console.get(path)
            assert page.status == 503
            assert "The cluster does not answer" in page.text
            assert page.headers["refresh"] == "5"


async def test_a_worker_that_has_ended_is_no_error_while_another_one_answers(
    cluster: WorkerCluster, gateway: RunningGateway
) -> None:
    assert gateway.url
    for path in PAGES:
        # the first call goes to the first address
        async with running_gateway([free_address(), cluster.workers[0].address]) as fresh:
            page = await ConsoleClient(fresh).get(path)
            assert page.status == 200, page.text


async def test_a_viewer_sees_which_role_is_missing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("cluster-roles")
    certificates = directory / "certificates"
    init_certificates(certificates)
    grant_tokens(certificates)
    async with WorkerCluster(directory, certificates=certificates) as cluster:
        worker = await cluster.add_worker(tls_client_auth="none")
        await cluster.settled(worker)
        async with running_gateway(
            [worker.address], certificates=certificates, gateway_session_keys="k" * 32
        ) as gateway:
            console = ConsoleClient(gateway)
            for path in PAGES:
                page = await console.get(path)
                assert "/ui/sign-in?next=" in page.url
            await console.sign_in("viewer")
            for path in PAGES[:4]:
                assert (await console.get(path)).status == 200
            page = await console.get("/ui/audit")
            assert page.status == 403
            assert "ListAuditEvents needs the role admin for the whole cluster" in page.text
            workers = await shown(console, "/ui/workers", "accepts work")
            assert "Drain" not in workers.text
            fields = (("action", "drain"), ("worker", worker.address))
            for path in (workers_page.CONFIRM, workers_page.RUN):
                refused = await console.post_by_hand(path, *fields)
                assert refused.status == 403
                assert "DrainWorker needs the role operator" in refused.text
            loggers = await console.get("/ui/loggers")
            assert loggers_page.CONFIRM not in [each.action for each in loggers.forms]
            fields = (("logger", "root"), ("level", "OFF"))
            for path in (loggers_page.CONFIRM, loggers_page.RUN):
                refused = await console.post_by_hand(path, *fields)
                assert refused.status == 403
                assert "SetLoggerLevel needs the role admin for the whole cluster" in refused.text
            await console.sign_in("admin")
            path = "/ui/audit?outcome=PERMISSION_DENIED"
            await shown(console, path, "the-viewer", "DrainWorker")
