"""The OpenAPI document has every resource, and every status that was recorded of Kafka Connect."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drover_gateway.rest.errors import RestError
from drover_gateway.rest.handlers import HANDLERS
from drover_gateway.rest.openapi import openapi, openapi_json
from drover_gateway.rest.path import split_path
from drover_gateway.rest.schemas import SCHEMAS
from drover_gateway.rest.table import RESOURCES, Router

CORPUS = Path(__file__).parents[2] / "data" / "rest_corpus"
#: Recorded statuses of errors of Kafka Connect, which the gateway documents as 400.
INTERNAL_ERROR = 500


def recorded() -> Iterator[dict[str, Any]]:
    for profile in ("default", "configured", "closed", "names"):
        path = CORPUS / f"kafka-connect-4.4.0.{profile}.jsonl"
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def test_every_recorded_status_is_documented() -> None:
    document = openapi()
    router = Router()
    count = 0
    for each in recorded():
        request, status = each["request"], each["response"]["status"]
        path = request["path"].partition("?")[0].replace("<logger>", "drover")
        try:
            match = router.find(split_path(path.encode()))
        except RestError:
            assert status == 400, each["case"]
            continue
        if match is None:
            assert status == 404, each["case"]
            continue
        method = request["method"]
        if status == 405:
            assert method not in match.resource.methods, each["case"]
            continue
        assert method in match.resource.methods, each["case"]
        if method in ("HEAD", "OPTIONS") or status == INTERNAL_ERROR:
            continue
        operation = document["paths"][match.resource.path][method.lower()]
        is_ambiguous = "%25" in path or "%2f" in path.lower()
        documented = set(operation["responses"]) | ({"400"} if is_ambiguous else set())
        # recorded with other settings
        documented |= {"auth-health": {"401"}, "admin-off": {"404"}}.get(each["case"], set())
        assert str(status) in documented, each["case"]
        count += 1
    assert count > 250


def test_every_reference_is_to_a_schema() -> None:
    text = openapi_json(admin=True).decode()
    names = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= SCHEMAS.keys()
    assert SCHEMAS.keys() - names <= {"OpenApi"}


def test_every_operation_has_a_handler_with_its_name() -> None:
    operations = [each for resource in RESOURCES for each in resource.operations]
    assert HANDLERS.keys() == {each.name for each in operations if not each.internal}
    assert len({each.name for each in operations}) == len(operations)


@pytest.mark.parametrize("admin", [True, False])
def test_administrative_resources_are_in_the_document_if_they_are_served(admin: bool) -> None:
    paths = json.loads(openapi_json(admin=admin))["paths"]
    assert ("/admin/loggers" in paths) is admin
