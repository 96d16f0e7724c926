"""Every RPC of every service, with empty, random and oversized requests: no response is a defect.

The RPCs are read from the descriptors, so a new RPC is tested automatically.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drover.api.config_store.v1 import config_store_service_pb2
from drover.api.connect.v1 import connect_service_pb2
from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.status_store.v1 import status_store_service_pb2
from drover.api.worker.v1 import worker_service_pb2
from tests.support.fake_engine import SOURCE
from tests.support.worker_cluster import WorkerCluster

SEEDS = range(8)
SERVICES = {
    "coordinator": coordinator_service_pb2,
    "config_store": config_store_service_pb2,
    "status_store": status_store_service_pb2,
    "connect": connect_service_pb2,
    "worker": worker_service_pb2,
}
#: Status codes that a caller cannot act upon.
DEFECTS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED}
#: The deadline for calls that may wait: parked joins and streams.
TIMEOUT_S = 0.5
TEXTS = ["", " ", "c", "é\u0000\u2028", "../..", "a" * 300, "{}", '{"a":1}', "drover", SOURCE]
NUMBERS = [0, 1, -1, 7, 2**31 - 1, -(2**31)]


def methods_of(place: str) -> list[MethodDescriptor]:
    services = SERVICES[place].DESCRIPTOR.services_by_name.values()
    return [method for service in services for method in service.methods]


@pytest.fixture
async def addresses(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The address of each service of a cluster with a connector."""
    async with WorkerCluster(tmp_path) as cluster:
        # this protocol needs no signatures, so unsigned requests reach WorkerService's methods
        worker = await cluster.add_worker(connect_protocol="compatible")
        await cluster.settled(worker)
        create = connect_service_pb2.CreateConnectorRequest(
            name="c", config={"connector.class": SOURCE}
        )
        await worker.stub.CreateConnector(create, timeout=20)
        yield {
            "coordinator": cluster.addresses["coordinator_address"],
            "config_store": cluster.addresses["config_store_address"],
            "status_store": cluster.addresses["status_store_address"],
            "connect": worker.address,
            "worker": worker.internal_address,
        }


def random_message(descriptor: Descriptor, rng: random.Random, depth: int = 0) -> Message:
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if rng.random() < 0.3 or depth > 3:
            continue
        _fill(message, field, rng, depth)
    return message


def _fill(message: Message, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        for _ in range(rng.randrange(3)):
            getattr(message, field.name)[_value(entry.fields[0], rng)] = _value(
                entry.fields[1], rng
            )
    elif field.is_repeated:
        for _ in range(rng.randrange(4)):
            target = getattr(message, field.name)
            if entry is None:
                target.append(_value(field, rng))
            else:
                target.add().CopyFrom(random_message(entry, rng, depth + 1))
    elif entry is not None:
        getattr(message, field.name).CopyFrom(random_message(entry, rng, depth + 1))
    else:
        setattr(message, field.name, _value(field, rng))


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    kinds = FieldDescriptor
    match field.cpp_type:
        case kinds.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case kinds.CPPTYPE_ENUM:
            return rng.choice([0, 1, 99])
        case kinds.CPPTYPE_STRING if field.type == kinds.TYPE_BYTES:
            return rng.choice([b"", b"\xff\x00", b"a" * 1_000])
        case kinds.CPPTYPE_STRING:
            return rng.choice(TEXTS)
        case kinds.CPPTYPE_UINT32 | kinds.CPPTYPE_UINT64:
            return abs(rng.choice(NUMBERS[:5]))
        case kinds.CPPTYPE_DOUBLE | kinds.CPPTYPE_FLOAT:
            return rng.choice([0.0, -1.0, float("nan"), float("inf")])
        case _:
            return rng.choice(NUMBERS)


def oversized(descriptor: Descriptor) -> Message | None:
    """A request with a text of 3 MiB, or None without a text field; the message limit is 4 MiB."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, "x" * 3 * 1024 * 1024)
            return message
    return None


async def answer_of(
    channel: grpc.aio.Channel, method: MethodDescriptor, request: Message
) -> tuple[grpc.StatusCode, str]:
    """The status code and details of a call; streams and waits end at the deadline."""
    service, _, name = method.full_name.rpartition(".")
    path = f"/{service}/{name}"
    call: Any
    if method.server_streaming:
        call = channel.unary_stream(path)(request.SerializeToString(), timeout=TIMEOUT_S)  # type: ignore[arg-type]
        with suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
    else:
        call = channel.unary_unary(path)(request.SerializeToString(), timeout=TIMEOUT_S)  # type: ignore[arg-type]
    return await call.code(), await call.details() or ""


@pytest.mark.parametrize("place", SERVICES)
async def test_whatever_is_sent_the_answer_is_one_to_act_upon(
    addresses: dict[str, str], place: str
) -> None:
    async with grpc.aio.insecure_channel(addresses[place]) as channel:
        for method in methods_of(place):
            requests = [GetMessageClass(method.input_type)()]
            requests += [random_message(method.input_type, random.Random(seed)) for seed in SEEDS]
            requests += [large] if (large := oversized(method.input_type)) else []
            answers = await asyncio.gather(*(answer_of(channel, method, r) for r in requests))
            for request, (code, details) in zip(requests, answers, strict=True):
                said = f"{method.name} with {str(request)[:500]!r}: {code} {details}"
                assert code not in DEFECTS, said
                assert "Traceback" not in details, said


async def test_a_name_that_was_pasted_with_blanks_is_that_name_in_every_call(
    addresses: dict[str, str],
) -> None:
    def named(method: MethodDescriptor, name: str) -> Message:
        request = GetMessageClass(method.input_type)()
        request.name = name  # type: ignore[attr-defined]
        return request

    of_connector = [
        each for each in methods_of("connect") if "name" in each.input_type.fields_by_name
    ]
    of_connector.sort(key=lambda each: each.name in ("DeleteConnector", "StopConnector"))
    async with grpc.aio.insecure_channel(addresses["connect"]) as channel:
        for method in of_connector:
            if method.name == "DeleteConnector":
                continue
            exact = await answer_of(channel, method, named(method, "c"))
            pasted = await answer_of(channel, method, named(method, " c\u00a0\n"))
            assert pasted[0] == exact[0], f"{method.name}: {exact} {pasted}"
        (delete,) = [each for each in of_connector if each.name == "DeleteConnector"]
        assert (await answer_of(channel, delete, named(delete, "\tc ")))[0] is grpc.StatusCode.OK
        assert (await answer_of(channel, delete, named(delete, "c")))[0] is (
            grpc.StatusCode.NOT_FOUND
        )


def test_every_service_is_walked() -> None:
    assert {place: len(methods_of(place)) > 1 for place in SERVICES} == dict.fromkeys(
        SERVICES, True
    )
