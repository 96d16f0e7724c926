"""A validation gives its caller no rights of the worker, and harms no other caller."""

import asyncio
from collections.abc import Mapping

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import PermissionDeniedError
from tests.support import plugins_for_tests as plugins
from tests.support.http_api import Reply, Request, running_api
from tests.support.plugins_for_tests import plugin
from tests.support.secure_cluster import SECRET, SecureCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

HANGING_COUNT = 10


async def validated(
    secure: SecureCluster, user: str, config: Mapping[str, str], name: str = "a-x"
) -> pb.ValidateConfigResponse:
    async with secure.client(user) as client:
        return await client.validate_config({"name": name, **config}, timeout_s=110)


def no_items(_request: Request) -> Reply:
    return Reply([])


def http_source(url: str) -> dict[str, str]:
    return {"connector.class": "HttpSource", "topic": "t", "http.url": url}


async def test_an_operators_validation_calls_no_host_and_resolves_no_placeholder(
    secure: SecureCluster,
) -> None:
    with running_api(no_items) as canary:
        config = http_source(canary.url + "/?x=${env:CANARY}")
        response = await validated(secure, "operator-of-a", config)
        assert canary.requests == []
        skipped = [each.setting for each in response.skipped_checks]
        assert skipped == ["", "http.url"]
        assert all("may change" in e.reason or "ADMIN" in e.reason for e in response.skipped_checks)
        response = await validated(secure, "admin-of-a", config)
        assert [each.query for each in canary.requests] == [{"x": SECRET}]
        assert not response.skipped_checks
        assert SECRET.casefold() not in str(response).casefold()


async def test_the_rights_for_one_connector_are_not_those_for_another(
    secure: SecureCluster,
) -> None:
    with running_api(no_items) as canary:
        for user in ("operator-of-a", "admin-of-a"):
            with pytest.raises(PermissionDeniedError, match="role operator for connector 'b-x'"):
                await validated(secure, user, http_source(canary.url), name="b-x")
        for user in ("viewer", "stranger"):
            with pytest.raises(PermissionDeniedError):
                await validated(secure, user, http_source(canary.url))
        assert canary.requests == []


async def test_hanging_and_busy_validations_delay_only_their_own_caller(
    secure: SecureCluster,
) -> None:
    file = str(secure.cluster.directory / "files" / "in.txt")
    ordinary = {"connector.class": "FileStreamSource", "file": file, "topic": "t"}
    before = secure.cluster.log("worker-1").count("replacing the engine")
    kinds = (plugins.HangsInValidate, plugins.KeepsTheInterpreter, plugins.CrashesInValidate)
    attacks = [
        asyncio.create_task(
            validated(
                secure, "operator-of-a", {"connector.class": plugin(kinds[n % 3]), "topic": "t"}
            )
        )
        for n in range(HANGING_COUNT)
    ]
    good = await validated(secure, "admin", ordinary, name="c")
    assert good.error_count == 0
    for response in await asyncio.gather(*attacks):
        (violation,) = response.violations
        assert "did not return" in violation.description or "crashed" in violation.description
    assert (await validated(secure, "operator-of-a", ordinary)).error_count == 0
    assert secure.cluster.log("worker-1").count("replacing the engine") == before
