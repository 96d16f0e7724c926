"""The REST API over real workers with engines that run no plugin: callers, secrets, repetitions."""

import asyncio
import base64
import json
import string
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import yaml

from drover.model.secrets import MASK
from drover.security import renewed
from drover.security.development_ca import ACCESS_FILE, ROLES, init_certificates
from drover.security.grants import token_sha256
from drover_gateway.rest import call
from drover_gateway.rest.table import RESOURCES
from tests.gateway.test_corpus import differences
from tests.support.fake_engine import LOGGER, SINK, SOURCE
from tests.support.gateways import running_gateway
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1", "topic": "t"}
JSON = {"Content-Type": "application/json"}
#: Tokens by role; the password of basic authentication is one of them.
TOKENS = {"admin": "password", "viewer": "viewer-token", "operator": "operator-token"}


@asynccontextmanager
async def open_cluster(directory: Path, **settings: Any) -> AsyncIterator[WorkerCluster]:
    """A cluster without an access file."""
    async with WorkerCluster(directory) as cluster:
        await cluster.settled_workers(1, **settings)
        yield cluster


@asynccontextmanager
async def closed_cluster(
    directory: Path, *, worker: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[str]:
    """The URL of a gateway without a grant of a cluster with an access file."""
    certs = directory / "certs"
    init_certificates(certs)
    grants: list[dict[str, object]] = [
        {"certificate": f"drover-{name}", "role": role} for name, role in ROLES.items()
    ]
    grants += [
        {"token_sha256": token_sha256(token), "name": role, "role": role}
        for role, token in TOKENS.items()
    ]
    (certs / ACCESS_FILE).write_text(yaml.safe_dump({"grants": grants}))
    async with WorkerCluster(directory, certificates=certs) as cluster:
        await cluster.settled_workers(1, tls_client_auth="none", **(worker or {}))
        addresses = [each.address for each in cluster.workers]
        async with running_gateway(addresses, tls_ca=str(certs / "ca.pem"), **settings) as gateway:
            yield gateway.url


async def send(method: str, url: str, **options: Any) -> requests.Response:
    """One request from another thread."""
    return await asyncio.to_thread(requests.request, method, url, timeout=60, **options)


def bearer(role: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {TOKENS[role]}"}


async def test_the_recorded_requests_of_a_closed_cluster_have_the_recorded_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    settings: dict[str, Any] = {
        "gateway_topics": "off",
        "gateway_admin": "off",
        "gateway_health": "authenticated",
    }
    async with closed_cluster(tmp_path, **settings) as base:
        told = await differences(base, "closed", tmp_path / "rc")
    assert told.endswith("exit 0"), told


async def test_no_operation_answers_a_caller_without_a_credential(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as base:
        for resource in RESOURCES:
            path = resource.path.replace("{task}", "0").replace("{", "").replace("}", "")
            for operation in resource.operations:
                body = b"{" if operation.body else None
                headers = JSON if body else {}
                for more in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic !!!"}):
                    found = await send(
                        operation.method, base + path, data=body, headers={**headers, **more}
                    )
                    asked = f"{operation.method} {path} {more}: {found.status_code} {found.text}"
                    if operation.internal:
                        assert found.status_code == 400, asked
                    elif resource.needs_caller:
                        assert found.status_code == 401, asked
                        assert found.text == "User cannot access the resource."
                    else:
                        assert found.status_code == 200, asked


async def test_basic_credentials_are_a_token_with_any_name(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as base:
        for user in ("anyone", "", "a:b"):
            secret = base64.b64encode(f"{user.partition(':')[0]}:password".encode()).decode()
            found = await send(
                "GET", f"{base}/connectors", headers={"Authorization": f"Basic {secret}"}
            )
            assert (found.status_code, found.json()) == (200, [])


async def test_a_role_that_is_missing_is_403(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as base:
        made = await send(
            "PUT", f"{base}/connectors/a/config", json=CONFIG, headers=bearer("viewer")
        )
        assert (made.status_code, made.json()["error_code"]) == (403, 403)
        assert "admin" in made.json()["message"]


async def test_masked_secrets_can_be_read_and_written_back(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        url = f"{base}/connectors/a/config"
        secret = {**CONFIG, "db.login": "hidden-value"}
        made = await send("PUT", url, json=secret)
        assert made.status_code == 201
        assert made.json()["config"]["db.login"] == MASK
        read = (await send("GET", url)).json()
        assert read["db.login"] == MASK
        changed = await send("PUT", url, json={**read, "topic": "u"})
        assert (changed.status_code, changed.json()["config"]["topic"]) == (200, "u")
        (stored,) = cluster.workers[0].herder.context.view.connectors.values()
        assert (stored.config or {})["db.login"] == "hidden-value"
        validated = await send(
            "PUT", f"{base}/connector-plugins/{SOURCE}/config/validate", json=read
        )
        assert (validated.status_code, validated.json()["error_count"]) == (200, 0)
        patched = await send("PATCH", url, json={"db.login": MASK, "topic": "v"})
        assert (patched.status_code, patched.json()["config"]["topic"]) == (200, "v")
        (stored,) = cluster.workers[0].herder.context.view.connectors.values()
        assert (stored.config or {})["db.login"] == "hidden-value"
        masked = {**CONFIG, "db.token": MASK}
        for method, target, body in (
            ("PUT", f"{base}/connectors/new/config", masked),
            ("POST", f"{base}/connectors", {"name": "new", "config": masked}),
            ("PATCH", url, {"db.token": MASK}),
        ):
            refused = await send(method, target, json=body)
            assert refused.status_code == 400, (method, refused.text)
            assert "db.token: is the mask of a secret" in refused.json()["message"]


async def test_the_masks_of_other_tools_keep_a_secret_and_a_placeholder(tmp_path: Path) -> None:
    """kafka-ui shows six asterisks instead of a secret, and instead of a placeholder."""
    providers = {"env": {"allowlist.pattern": "DROVER_NONE"}}
    async with (
        open_cluster(tmp_path, config_providers=providers) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        url = f"{gateway.url}/connectors/a/config"
        for value in ("hidden-value", "${env:DROVER_NONE}"):
            config = {**CONFIG, "db.token": value}
            assert (await send("PUT", url, json=config)).ok
            shown = {**config, "topic": "u", "db.token": "******"}
            assert (await send("PUT", url, json=shown)).status_code == 200
            (stored,) = cluster.workers[0].herder.context.view.connectors.values()
            assert dict(stored.config or {}) == {**config, "topic": "u", "name": "a"}


def secret_reads(directory: Path) -> list[tuple[str, str]]:
    """Who read secrets, and the outcome, from the audit log."""
    lines = map(json.loads, (directory / "audit.log").read_text().splitlines())
    return [
        (line["principal"], line["outcome"])
        for line in lines
        if line["call"] == "GetConnectorSecrets"
    ]


async def test_secrets_are_returned_to_admins_only_and_each_read_is_audited(tmp_path: Path) -> None:
    worker = {"gateway_secrets": "admin"}
    async with closed_cluster(tmp_path, worker=worker, gateway_secrets="admin") as base:
        url = f"{base}/connectors/a"
        secret = {**CONFIG, "db.login": "hidden-value"}
        made = await send("PUT", f"{url}/config", json=secret, headers=bearer("admin"))
        assert made.json()["config"]["db.login"] == "hidden-value"
        for target in (url, f"{url}/config", f"{base}/connectors?expand=info"):
            for role, value in (("admin", "hidden-value"), ("viewer", MASK), ("operator", MASK)):
                read = await send("GET", target, headers=bearer(role))
                assert f'"db.login":"{value}"' in read.text, (target, role)
        reads = secret_reads(tmp_path)
        assert reads.count(("admin", "OK")) == 4
        assert {each for each in reads if each[0] != "admin"} == {
            ("viewer", "PERMISSION_DENIED"),
            ("operator", "PERMISSION_DENIED"),
        }


async def test_secrets_stay_masked_unless_the_workers_allow_them(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path, gateway_secrets="admin") as base:
        secret = {**CONFIG, "db.login": "hidden-value"}
        url = f"{base}/connectors/a/config"
        made = await send("PUT", url, json=secret, headers=bearer("admin"))
        assert (made.status_code, made.json()["config"]["db.login"]) == (201, MASK)


async def test_placeholders_are_no_secrets(tmp_path: Path) -> None:
    providers = {"env": {"allowlist.pattern": "DROVER_NONE"}}
    async with (
        open_cluster(tmp_path, config_providers=providers) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        config = {**CONFIG, "db.login": "${env:DROVER_NONE}"}
        await send("PUT", f"{base}/connectors/a/config", json=config)
        read = await send("GET", f"{base}/connectors/a/config")
        assert read.json() == {**config, "name": "a"}


async def test_a_tool_that_waits_for_its_config_reads_it_back(tmp_path: Path) -> None:
    """As Terraform's provider: after each change it reads the config until both are equal."""
    providers = {"env": {"allowlist.pattern": "DROVER_NONE"}}
    worker = {"config_providers": providers, "gateway_secrets": "admin"}
    async with open_cluster(tmp_path, **worker) as cluster:
        address = cluster.workers[0].address
        for secrets, login, shown in (
            ("masked", "${env:DROVER_NONE}", "${env:DROVER_NONE}"),
            ("admin", "${env:DROVER_NONE}", "${env:DROVER_NONE}"),
            ("admin", "hidden-value", "hidden-value"),
            ("masked", "hidden-value", MASK),
        ):
            async with running_gateway([address], gateway_secrets=secrets) as gateway:
                url = f"{gateway.url}/connectors/a"
                await send("DELETE", url)
                config = {**CONFIG, "name": "a", "db.login": login}
                body = {"name": "a", "config": config}
                made = await send("POST", f"{gateway.url}/connectors", json=body)
                changed = await send("PUT", f"{url}/config", json={**config, "topic": "u"})
                assert (made.status_code, changed.status_code) == (201, 200)
                wanted = {**config, "topic": "u", "db.login": shown}
                assert changed.json()["config"] == wanted
                assert (await send("GET", f"{url}/config")).json() == wanted
                assert (await send("GET", url)).json()["config"] == wanted


async def test_a_repeated_request_with_the_same_key_creates_one_connector(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        body = {"name": "a", "config": CONFIG}
        key = {"Idempotency-Key": "one"}
        answers = [
            await send("POST", f"{base}/connectors", json=body, headers=key) for _ in range(2)
        ]
        assert [each.status_code for each in answers] == [201, 201]
        other = {"name": "a", "config": {**CONFIG, "topic": "u"}}
        refused = await send("POST", f"{base}/connectors", json=other, headers=key)
        assert refused.status_code == 409
        assert (await send("POST", f"{base}/connectors", json=body)).status_code == 409


async def test_two_clients_can_change_one_connector(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        url = f"{base}/connectors/a/config"
        await send("PUT", url, json=CONFIG)
        changes = {"padding": "1", "fail.start": "", "topics": "a", "tasks": "1"}
        patches = [send("PATCH", url, json={key: text}) for key, text in changes.items()]
        assert {each.status_code for each in await asyncio.gather(*patches)} == {200}
        assert (await send("GET", url)).json() == {**CONFIG, **changes, "name": "a"}
        calls = [
            *(send("DELETE", f"{base}/connectors/a") for _ in range(3)),
            *(send("PUT", url, json=CONFIG) for _ in range(3)),
        ]
        found = {each.status_code for each in await asyncio.gather(*calls)}
        assert found <= {200, 201, 204, 404}


async def test_names_with_any_printable_character(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        for char in f"{string.punctuation} é日😀":
            name = f"a{char}b"
            body = {"name": name, "config": CONFIG, "initial_state": "STOPPED"}
            made = await send("POST", f"{base}/connectors", json=body)
            assert (made.status_code, made.json()["name"]) == (201, name)
            url = f"{base}/connectors/{quote(name, safe='')}"
            assert (await send("GET", url)).json()["name"] == name
            assert (await send("DELETE", url)).status_code == 204
            assert (await send("GET", url)).json()["message"] == f"Connector {name} not found"


async def test_unavailable_workers_are_503_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "UNAVAILABLE_TIMEOUT_S", 2.0)
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        await send("PUT", f"{base}/connectors/a/config", json=CONFIG)
        await cluster.coordinator.kill()
        refused = await send("GET", f"{base}/connectors/a/offsets")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        await cluster.config_store.kill()
        refused = await send("PUT", f"{base}/connectors/a/config", json=CONFIG)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "did not finish in time" in refused.json()["message"]
        await cluster.workers[0].service.kill()
        refused = await send("GET", f"{base}/connectors")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["message"].startswith("the server cannot be reached")


async def test_a_request_waits_for_a_worker_that_is_unavailable(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        cluster.workers[0].engine.die()
        asked = asyncio.create_task(send("PUT", f"{base}/connectors/a/config", json=CONFIG))
        await asyncio.sleep(0)
        cluster.workers[0].engine.come_back()
        assert (await asked).status_code == 201


async def test_bodies_above_the_limit_are_413(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        for size_mib in (2, 5):
            data = b'{"a": "' + b"x" * (size_mib << 20) + b'"}'
            refused = await send("PUT", f"{base}/connectors/a/config", data=data, headers={**JSON})
            assert (refused.status_code, refused.json()["error_code"]) == (413, 413)
        assert (await send("GET", f"{base}/connectors")).json() == []


async def test_a_sink_and_its_offsets(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        config = {"connector.class": SINK, "topics": "t"}
        body = {"name": "s", "config": config, "initial_state": "stopped"}
        assert (await send("POST", f"{base}/connectors", json=body)).status_code == 201

        async def stopped() -> bool:
            status = await send("GET", f"{base}/connectors/s/status")
            return bool(status.json()["connector"]["state"] == "STOPPED")

        await wait_until_async(stopped)
        offset = {"kafka_offset": 12345678901234}
        at = {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": offset}
        changed = await send("PATCH", f"{base}/connectors/s/offsets", json={"offsets": [at]})
        assert changed.status_code == 200, changed.text
        assert "manually altered" in changed.json()["message"]
        assert (await send("GET", f"{base}/connectors/s/offsets")).json() == {"offsets": [at]}


async def test_loggers_are_those_of_one_worker(tmp_path: Path) -> None:
    """What was set is read back, and is set on no other worker unless the caller asks for it."""
    async with WorkerCluster(tmp_path) as cluster:
        workers = await cluster.settled_workers(2)
        async with running_gateway([each.address for each in workers]) as gateway:
            url = f"{gateway.url}/admin/loggers"
            for level in ("DEBUG", "WARN", "ERROR"):
                for _ in range(2):
                    changed = await send("PUT", f"{url}/{LOGGER.name}", json={"level": level})
                    assert (changed.status_code, changed.json()) == (200, [LOGGER.name])
            assert [len(each.engine.logger_levels) for each in workers] == [6, 0]
            await send("PUT", f"{url}/{LOGGER.name}?scope=cluster", json={"level": "INFO"})
            await wait_until_async(
                lambda: [len(each.engine.logger_levels) for each in workers] == [7, 1]
            )
            await workers[0].service.stop()
            changed = await send("PUT", f"{url}/{LOGGER.name}", json={"level": "DEBUG"})
            assert changed.status_code == 200
            assert len(workers[1].engine.logger_levels) == 2


async def test_large_lists_are_compressed_and_configs_are_not(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        base = gateway.url
        # with long names the statuses are above the limit, the names alone are below it
        names = [f"{number}-{'n' * 60}" for number in range(8)]
        for name in names:
            body = {"name": name, "config": {**CONFIG, "padding": "400"}}
            await send("POST", f"{base}/connectors", json=body)

        async def all_run() -> bool:
            statuses = (await send("GET", f"{base}/connectors?expand=status")).json()
            tasks = [task for each in statuses.values() for task in each["status"]["tasks"]]
            return [each["state"] for each in tasks] == ["RUNNING"] * len(names)

        await wait_until_async(all_run)
        found = {}
        for path, compressed in (
            ("/connectors?expand=status", True),
            ("/openapi.json", True),
            ("/connectors", False),
            ("/connectors?expand=info", False),
            ("/connectors?expand=status&expand=info", False),
            (f"/connectors/{names[0]}", False),
        ):
            plain = await send("GET", base + path, headers={"Accept-Encoding": "identity"})
            found[path] = await send("GET", base + path)
            assert ("content-encoding" in found[path].headers) == compressed, path
            assert "content-encoding" not in plain.headers
            assert found[path].text == plain.text
        assert found["/openapi.json"].headers["vary"] == "Accept-Encoding"
        assert len(found["/connectors?expand=status"].json()) == 8
