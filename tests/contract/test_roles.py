"""Every RPC of the contract needs a role, and the table of roles knows no other."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import MethodDescriptor

from drover.api.config_store.v1 import config_store_service_pb2
from drover.api.connect.v1 import connect_service_pb2
from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.status_store.v1 import status_store_service_pb2
from drover.api.worker.v1 import worker_service_pb2
from drover.rpc.roles import ACCESS, Access, Effect, Scope, access_of
from drover.security.principal import Role
from tests.support.descriptors import elements
from tests.support.repository import REPOSITORY

MODULES = [
    config_store_service_pb2,
    connect_service_pb2,
    coordinator_service_pb2,
    status_store_service_pb2,
    worker_service_pb2,
]
#: What begins so only reads.
READS = ("Get", "List", "Watch", "Find", "Describe", "Fetch", "Validate")


def methods() -> Iterator[MethodDescriptor]:
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def names_of_table() -> set[str]:
    return {f"{service}.{rpc}" for service, rpcs in ACCESS.items() for rpc in rpcs}


def test_every_rpc_has_a_role() -> None:
    known = names_of_table()
    missing = sorted(m.full_name for m in methods() if m.full_name not in known)
    assert not missing, f"give these RPCs a role in shared/drover/rpc/roles.py: {missing}"


def test_every_service_of_the_contract_is_looked_at() -> None:
    services = {each.name for each in elements() if each.kind == "service"}
    assert services == {m.containing_service.full_name for m in methods()}


def test_the_table_has_no_rpc_that_is_gone() -> None:
    gone = sorted(names_of_table() - {m.full_name for m in methods()})
    assert not gone, f"take these out of shared/drover/rpc/roles.py: {gone}"


@pytest.mark.parametrize("method", list(methods()), ids=lambda m: m.full_name)
def test_the_role_fits_the_request(method: MethodDescriptor) -> None:
    service, _, rpc = method.full_name.rpartition(".")
    access = ACCESS[service][rpc]
    if access.scope is Scope.CONNECTOR:
        fields = {field.name for field in method.input_type.fields}
        assert fields & {"name", "config"}, "has neither name nor config: choose another scope"
    reads = rpc.startswith(READS)
    assert (access.effect is Effect.CHANGES) is (not reads) or access.role is Role.INTERNAL
    if access.role is Role.VIEWER:
        assert reads, "changes something: a viewer may only read"


def test_reads_of_records_validations_and_what_the_config_store_serves_are_audited() -> None:
    audited = {
        f"{service.rpartition('.')[2]}.{rpc}"
        for service, rpcs in ACCESS.items()
        for rpc, access in rpcs.items()
        if access.effect is Effect.READS
    }
    assert audited == {
        "ConnectService.WatchTopic",
        "ConnectService.GetTopicRecordCount",
        "ConnectService.ValidateConfig",
        "ConnectService.GetConnectorSecrets",
        "ConfigStoreService.GetSnapshot",
        "ConfigStoreService.WatchConfigs",
        "ConfigStoreService.GetConnectorHistory",
        "ConfigStoreService.GetDeadLetterStates",
    }
    stored = ACCESS["drover.api.config_store.v1.ConfigStoreService"]
    assert [rpc for rpc, access in stored.items() if not access.audited] == ["GetEndOffset"]


def test_what_the_table_lacks_is_for_services_alone() -> None:
    assert access_of("/drover.api.connect.v1.ConnectService/New") == Access(Role.INTERNAL)


def test_the_page_has_the_table() -> None:
    page = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    for service in ("Connect", "Coordinator"):
        full = f"drover.api.{service.lower()}.v1.{service}Service"
        for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
            rpcs = sorted(rpc for rpc, access in ACCESS[full].items() if access.role is role)
            for rpc in rpcs:
                row = next(line for line in page.splitlines() if f"`{rpc}`" in line)
                assert row.startswith(f"| {role.name.lower()} "), f"{rpc}: {row}"
