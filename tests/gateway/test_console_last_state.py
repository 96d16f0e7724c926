"""The last known state, which pages show while no worker answers."""

from pathlib import Path

from drover.security.development_ca import init_certificates
from drover.security.grants import token_sha256
from drover_gateway.console.connectors_page import CONFIRM, form_value
from tests.support.addresses import free_address
from tests.support.console_client import ConsoleClient, Page
from tests.support.fake_engine import SOURCE
from tests.support.gateways import TOKENS, grant_tokens, running_gateway
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
PATHS = ("/ui/", "/ui/connectors")
NOTICE = "This is the last known state, of"


async def shows_the_present_state(console: ConsoleClient) -> Page:
    """The list of connectors, once it is not an old one."""
    found: list[Page] = []

    async def is_present() -> bool:
        found.append(await console.get("/ui/connectors"))
        return found[-1].status == 200 and NOTICE not in found[-1].text

    await wait_until_async(is_present)
    return found[-1]


async def test_pages_show_the_last_state_of_their_caller_until_a_worker_answers(
    tmp_path: Path,
) -> None:
    certs = tmp_path / "certificates"
    init_certificates(certs)
    grant_tokens(certs)
    settings = {"worker_listen": free_address(), "tls_client_auth": "none"}
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(**settings)
        await cluster.settled(worker)
        async with running_gateway([worker.address], certificates=certs) as gateway:
            put = await gateway.ask("PUT", "/connectors/c-1/config", role="admin", json=CONFIG)
            assert put.status_code == 201, put.text
            await cluster.running("c-1", 1, worker)
            viewer, operator, admin = (ConsoleClient(gateway) for _ in range(3))
            await viewer.sign_in("viewer")
            await operator.sign_in("operator")
            for console in (viewer, operator):
                assert "c-1" in (await shows_the_present_state(console)).text
            await worker.service.kill()

            async def shows_the_last_state() -> bool:
                return NOTICE in (await viewer.get("/ui/connectors")).text

            await wait_until_async(shows_the_last_state)
            for path in PATHS:
                page = await viewer.get(path)
                assert page.status == 200
                assert "c-1" in page.text
                assert "The cluster does not answer" in page.text
            assert "c-1" in (await viewer.get("/ui/connectors?part=results")).text
            # nothing is decided on an old state
            page = await operator.get("/ui/connectors")
            action = (("name", form_value("c-1")), ("action", "pause"))
            assert (await operator.submit(page, CONFIRM, *action)).status == 503
            # a caller who has read nothing before does not get another caller's state
            admin.session.cookies.clear()
            page = await admin.get("/ui/connectors")
            assert page.status == 503
            assert "c-1" not in page.text
            # the worker comes back without the operator's grant
            viewers = {"token_sha256": token_sha256(TOKENS["viewer"]), "role": "viewer"}
            grant_tokens(certs, {**viewers, "name": "the-viewer"}, roles=False)
            worker = await cluster.add_worker(**settings)
            await cluster.settled(worker)
            assert "c-1" in (await shows_the_present_state(viewer)).text
            page = await operator.get("/ui/connectors")
            assert "The workers do not accept this token" in page.text
            assert "c-1" not in page.text
