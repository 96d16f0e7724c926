"""The symbols of aiokafka that Drover uses and aiokafka does not document.

A release of aiokafka may change any of it, so shared/pyproject.toml admits one minor version. Raise
that bound when this file passes with the new version, and so do tests/kafka.
"""

import importlib
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion

from drover.log.kafka.aiokafka_client import reach
from drover.log.storage import KafkaStorage
from tests.support.library_uses import Arguments, LibraryUses, passed
from tests.support.repository import REPOSITORY, python_files, text_of

LIBRARY = "aiokafka"
CLIENT = "aiokafka.client.AIOKafkaClient"
#: docs/api.rst of aiokafka describes these.
DOCUMENTED = (
    "aiokafka.AIOKafkaConsumer",
    "aiokafka.AIOKafkaProducer",
    "aiokafka.abc",
    "aiokafka.errors",
    "aiokafka.helpers",
    "aiokafka.structs",
)


#: Symbols that shared/ and services/ use, with the arguments of calls; None without a call.
USED: Mapping[str, Arguments | None] = {
    "aiokafka.client.AIOKafkaClient": passed(
        0, "client_id", "metadata_max_age_ms", "request_timeout_ms"
    ),
    "aiokafka.client.AIOKafkaClient.force_metadata_update": None,
    "aiokafka.client.ConnectionGroup": None,
    "aiokafka.client.ConnectionGroup.COORDINATION": None,
    "aiokafka.client.ConnectionGroup.DEFAULT": None,
    "aiokafka.codec.gzip_decode": passed(1),
    "aiokafka.codec.gzip_encode": passed(2),
    "aiokafka.codec.lz4_decode": passed(1),
    "aiokafka.codec.lz4_encode": passed(2),
    "aiokafka.codec.snappy_decode": passed(1),
    "aiokafka.codec.snappy_encode": passed(1),
    "aiokafka.codec.zstd_decode": passed(1),
    "aiokafka.codec.zstd_encode": passed(2),
    "aiokafka.protocol.api.Request": None,
    "aiokafka.protocol.api.Request.API_KEY": None,
    "aiokafka.protocol.api.Request.build": None,
    "aiokafka.protocol.api.RequestStruct": None,
    "aiokafka.protocol.api.RequestStruct.API_KEY": None,
    "aiokafka.protocol.api.RequestStruct.API_VERSION": None,
    "aiokafka.protocol.api.RequestStruct.FLEXIBLE_VERSION": None,
    "aiokafka.protocol.api.RequestStruct.RESPONSE_TYPE": None,
    "aiokafka.protocol.api.RequestStruct.SCHEMA": None,
    "aiokafka.protocol.api.Response": None,
    "aiokafka.protocol.api.Response.API_KEY": None,
    "aiokafka.protocol.api.Response.API_VERSION": None,
    "aiokafka.protocol.api.Response.SCHEMA": None,
    "aiokafka.protocol.coordination.FindCoordinatorRequest": passed(2),
    "aiokafka.protocol.fetch.FetchRequest": passed(5),
    "aiokafka.protocol.metadata.MetadataRequest": passed(1, "allow_auto_topic_creation"),
    "aiokafka.protocol.produce.ProduceRequest": passed(
        0, "required_acks", "timeout", "topics", "transactional_id"
    ),
    "aiokafka.protocol.transaction.AddPartitionsToTxnRequest": passed(4),
    "aiokafka.protocol.transaction.EndTxnRequest": passed(4),
    "aiokafka.protocol.transaction.InitProducerIdRequest": passed(2),
    "aiokafka.protocol.types.Boolean": None,
    "aiokafka.protocol.types.CompactArray": passed(6),
    "aiokafka.protocol.types.CompactString": passed(1),
    "aiokafka.protocol.types.Int16": None,
    "aiokafka.protocol.types.Int32": None,
    "aiokafka.protocol.types.Int64": None,
    "aiokafka.protocol.types.Schema": passed(4),
    "aiokafka.protocol.types.TaggedFields": None,
    "aiokafka.record.memory_records.MemoryRecords": passed(1),
    "aiokafka.record.util.calc_crc32c": passed(1),
    "aiokafka.record.util.decode_varint": passed(2),
}

#: Extension types: their members are checked.
_WITHOUT_SIGNATURE = frozenset({"aiokafka.record.memory_records.MemoryRecords"})

#: Members that the code uses, by the class of their object.
CLIENT_MEMBERS = frozenset({"bootstrap", "close", "cluster", "send"})
CLUSTER_MEMBERS = frozenset({"broker_metadata", "brokers", "update_metadata"})
_BATCH_MEMBERS = frozenset(
    {"is_control_batch", "is_transactional", "next_offset", "producer_id", "validate_crc"}
)
_RECORD_MEMBERS = frozenset({"headers", "key", "offset", "timestamp", "value"})
MEMBERS: Mapping[str, frozenset[str]] = {
    "aiokafka.record.default_records.DefaultRecord": _RECORD_MEMBERS,
    "aiokafka.record.default_records.DefaultRecordBatch": _BATCH_MEMBERS,
    "aiokafka.record.legacy_records.LegacyRecord": _RECORD_MEMBERS,
    "aiokafka.record.legacy_records.LegacyRecordBatch": _BATCH_MEMBERS,
    "aiokafka.record.memory_records.MemoryRecords": frozenset({"next_batch"}),
    "aiokafka.structs.BrokerMetadata": frozenset({"host", "nodeId", "port"}),
}


@dataclass(frozen=True)
class Exchange:
    """A request as the code makes it, and the parts of its response that the code reads.

    Attributes:
        symbol: The class of the request.
        arguments: Its arguments.
        fields: Fields of the response that are read by name.
        first: The first fields of structures in arrays, by the array's path.
        first_version: The first version whose layout the code reads.
    """

    symbol: str
    arguments: tuple[Any, ...]
    fields: frozenset[str]
    first: Mapping[tuple[str, ...], tuple[str, ...]]
    first_version: int = 0


FETCH = "aiokafka.protocol.fetch.FetchRequest"
EXCHANGES = (
    Exchange(
        "aiokafka.protocol.transaction.AddPartitionsToTxnRequest",
        ("id", 1, 0, [("t", [0])]),
        frozenset({"errors"}),
        {
            ("errors",): ("topic", "partition_errors"),
            ("errors", "partition_errors"): ("partition", "error_code"),
        },
    ),
    Exchange(
        "aiokafka.protocol.transaction.EndTxnRequest",
        ("id", 1, 0, True),
        frozenset({"error_code"}),
        {},
    ),
    Exchange(
        FETCH,
        (500, 1, 1024, 1, [("t", [(0, 0, 1024)])]),
        frozenset({"API_VERSION", "topics"}),
        {("topics",): ("topics", "partitions"), ("topics", "partitions"): ("partition",)},
    ),
    Exchange(
        "aiokafka.protocol.coordination.FindCoordinatorRequest",
        ("id", 1),
        frozenset({"coordinator_id", "error_code", "host", "port"}),
        {},
    ),
    Exchange(
        "aiokafka.protocol.transaction.InitProducerIdRequest",
        ("id", 1000),
        frozenset({"error_code", "producer_epoch", "producer_id"}),
        {},
    ),
    Exchange(
        "aiokafka.protocol.metadata.MetadataRequest",
        (["t"], False),
        frozenset({"topics"}),
        {
            ("topics",): ("error_code", "topic", "is_internal", "partitions"),
            ("topics", "partitions"): ("error_code", "partition", "leader"),
        },
        first_version=1,
    ),
    Exchange(
        "aiokafka.protocol.produce.ProduceRequest",
        ("id", -1, 1000, []),
        frozenset({"topics"}),
        {("topics",): ("topic", "partitions"), ("topics", "partitions"): ("partition",)},
    ),
)
_VERSIONS_MAX = 40


@cache
def uses() -> Mapping[Path, LibraryUses]:
    """Of each file of the product that uses undocumented symbols."""
    found = {
        path: LibraryUses(text_of(path) or "", LIBRARY, DOCUMENTED)
        for path in python_files("shared", "services")
    }
    return {path: each for path, each in found.items() if each.symbols}


def resolved(symbol: str) -> Any:
    """The symbol itself; an AssertionError names what is missing."""
    parts = symbol.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for number, name in enumerate(parts[count:], count):
            assert has_member(found, name), f"{'.'.join(parts[:number])} has no {name} any more"
            found = getattr(found, name, None)
        return found
    raise AssertionError(f"{LIBRARY} is not installed")


def has_member(owner: Any, name: str) -> bool:
    """Whether an object has it; of a class, also whether subclasses have to define it."""
    declared: Iterator[Any] = (vars(each).get("__annotations__", {}) for each in _classes(owner))
    return hasattr(owner, name) or any(name in each for each in declared)


def _classes(owner: Any) -> tuple[type, ...]:
    return owner.__mro__ if isinstance(owner, type) else ()


def names_of(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def responses(exchange: Exchange) -> Iterator[tuple[int, Any]]:
    """Each version in which the request can be sent, and the class of its response."""
    request = resolved(exchange.symbol)(*exchange.arguments)
    for version in range(exchange.first_version, _VERSIONS_MAX):
        try:
            built = request.prepare({request.API_KEY: (version, version)})
        except (IncompatibleBrokerVersion, NotImplementedError):
            continue
        yield version, built.RESPONSE_TYPE


def names_at(schema: Any, path: tuple[str, ...]) -> tuple[str, ...]:
    """The fields of the structure in the array at this path of a response."""
    for name in path:
        schema = schema.fields[schema.names.index(name)].array_of
    return tuple(schema.names)


def test_one_minor_version_of_aiokafka_is_admitted() -> None:
    project = tomllib.loads((REPOSITORY / "shared/pyproject.toml").read_text())["project"]
    declared = [
        each
        for some in (project["dependencies"], *project["optional-dependencies"].values())
        for each in some
        if each.startswith(LIBRARY)
    ]
    assert [each.partition(">=")[2] for each in declared] == ["0.14,<0.15"] * 2


@pytest.mark.parametrize("symbol", USED)
def test_aiokafka_has_the_symbol_and_takes_what_is_passed(symbol: str) -> None:
    found, arguments = resolved(symbol), USED[symbol]
    if arguments is None or symbol in _WITHOUT_SIGNATURE:
        return
    try:
        inspect.signature(found).bind(
            *[None] * arguments.positional_count, **dict.fromkeys(arguments.keywords)
        )
    except TypeError as error:
        pytest.fail(f"{symbol} does not take {arguments} any more: {error}")


def test_every_symbol_that_is_used_is_listed() -> None:
    unlisted = {
        f"{path} uses {symbol}: list it in USED, or do without"
        for path, each in uses().items()
        for symbol in each.symbols
        if symbol not in USED
    }
    assert not unlisted, "\n".join(sorted(unlisted))


def test_every_listed_symbol_is_used() -> None:
    assert USED.keys() <= {symbol for each in uses().values() for symbol in each.symbols}


def test_every_argument_that_is_passed_is_listed() -> None:
    unlisted = {
        f"{path} passes {symbol} {arguments}, USED has {USED.get(symbol)}"
        for path, each in uses().items()
        for symbol, calls in each.symbols.items()
        for arguments in calls
        if not _admits(USED.get(symbol), arguments)
    }
    assert not unlisted, "\n".join(sorted(unlisted))


def _admits(listed: Arguments | None, found: Arguments) -> bool:
    return (
        listed is not None
        and found.positional_count <= listed.positional_count
        and found.keywords <= listed.keywords
    )


@pytest.mark.parametrize("owner", MEMBERS)
def test_objects_of_aiokafka_have_the_members_that_are_used(owner: str) -> None:
    missing = MEMBERS[owner] - names_of(resolved(owner))
    assert not missing, f"{owner} lacks {sorted(missing)}"


async def test_a_client_has_the_members_that_are_used() -> None:
    client = resolved(CLIENT)()
    assert names_of(client) >= CLIENT_MEMBERS
    assert names_of(client.cluster) >= CLUSTER_MEMBERS
    inspect.signature(client.send).bind(0, None, group=None)


async def test_a_client_takes_the_arguments_made_of_client_settings() -> None:
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "password",
    }
    found = reach(KafkaStorage(bootstrap_servers="h:9092", group_id="g", client_config=settings))
    inspect.signature(resolved(CLIENT)).bind(**found)


async def test_every_member_that_is_used_is_listed() -> None:
    """The types of objects are unknown here, so each attribute with the name of a member counts."""
    client = resolved(CLIENT)()
    response_names = {
        name
        for exchange in EXCHANGES
        for _, response in responses(exchange)
        for name in response.SCHEMA.names
    }
    offered = names_of(client) | names_of(client.cluster) | response_names
    offered = offered.union(*(names_of(resolved(owner)) for owner in MEMBERS))
    listed = CLIENT_MEMBERS | CLUSTER_MEMBERS
    listed = listed.union(*MEMBERS.values(), *(each.fields for each in EXCHANGES))
    unlisted = {
        f"{path} uses .{name}: list it in this file, or do without"
        for path, each in uses().items()
        for name in (each.attributes & offered) - listed
    }
    assert not unlisted, "\n".join(sorted(unlisted))
    used = {name for each in uses().values() for name in each.attributes}
    assert listed <= used, f"no longer used: {sorted(listed - used)}"


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.symbol)
def test_responses_have_the_layout_that_is_read(exchange: Exchange) -> None:
    found = list(responses(exchange))
    assert found, f"{exchange.symbol} has no version that takes these arguments"
    for version, response in found:
        names = {*response.SCHEMA.names, "API_VERSION"}
        assert exchange.fields <= names, f"version {version} has {sorted(names)}"
        for path, first in exchange.first.items():
            layout = names_at(response.SCHEMA, path)
            assert layout[: len(first)] == first, f"version {version}, {'.'.join(path)}: {layout}"


def test_a_fetched_partition_has_its_fields_where_they_are_read() -> None:
    """The code unpacks topics as pairs, and takes fields of a partition by their index."""
    (exchange,) = [each for each in EXCHANGES if each.symbol == FETCH]
    for version, response in responses(exchange):
        assert len(names_at(response.SCHEMA, ("topics",))) == 2
        layout = names_at(response.SCHEMA, ("topics", "partitions"))
        assert (layout[1], layout[-1]) == ("error_code", "message_set"), (version, layout)
        assert layout[-3 if version >= 11 else -2] == "aborted_transactions", (version, layout)


def test_each_kind_of_use_is_found() -> None:
    found = LibraryUses(
        "import aiokafka.conn\n"
        "import importlib\n"
        "from aiokafka import AIOKafkaProducer, AIOKafkaClient as Plain\n"
        "from aiokafka.client import AIOKafkaClient, ConnectionGroup\n"
        "from aiokafka.errors import KafkaError\n"
        "class Own(AIOKafkaClient):\n"
        "    def ready(self): ...\n"
        "class Other(Plain):\n"
        "    def __init__(self, place): ...\n"
        "def f():\n"
        "    aiokafka.conn.create_conn('h', 1, client_id='c')\n"
        "    Own(loop=ConnectionGroup.DEFAULT).hosts\n"
        "    Other(1)\n"
        "    importlib.import_module('aiokafka.util')\n"
        "    AIOKafkaProducer(KafkaError)\n",
        LIBRARY,
        DOCUMENTED,
    )
    assert dict(found.symbols) == {
        "aiokafka.AIOKafkaClient": [],
        "aiokafka.client.AIOKafkaClient": [passed(0, "loop")],
        "aiokafka.client.AIOKafkaClient.ready": [],
        "aiokafka.client.ConnectionGroup": [],
        "aiokafka.client.ConnectionGroup.DEFAULT": [],
        "aiokafka.conn": [],
        "aiokafka.conn.create_conn": [passed(2, "client_id")],
        "aiokafka.util": [],
    }
    assert "hosts" in found.attributes


def test_a_symbol_that_is_gone_is_named() -> None:
    with pytest.raises(AssertionError, match=r"aiokafka\.codec has no brotli_encode any more"):
        resolved("aiokafka.codec.brotli_encode")
