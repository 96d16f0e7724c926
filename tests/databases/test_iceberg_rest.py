"""Iceberg tables in a real REST catalogue: each record is written once, with any server
response.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from pyiceberg.types import BooleanType

from drover.connector import RetriableError
from drover.connector.settings import parse_config, validate_config
from drover.connectors.lakehouse import rest_catalog
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import IcebergWriter, opened
from drover.connectors.refused_records import RefusedRecordError
from tests.support.http_gate import LOST, TWICE, HttpGate, Request, http_gate
from tests.support.iceberg_rest import IcebergRest, running_iceberg_rest
from tests.support.lake_records import orders, records
from tests.support.s3 import S3

pytestmark = pytest.mark.xdist_group("iceberg-rest")
_numbers = count(1)
EVOLVES = {"iceberg.tables.evolve-schema-enabled": "true"}
UPSERT = {
    "iceberg.tables.upsert-mode-enabled": "true",
    "pk.mode": "record_key",
    "delete.enabled": "true",
}


@dataclass(frozen=True)
class Sink:
    """A sink to the orders table in the test's own namespace."""

    config: dict[str, str]
    namespace: str

    def changed(self, **changed: str) -> "Sink":
        return replace(self, config={**self.config, **changed})

    def write(self, *batches: Any) -> int:
        settings = settings_of(IcebergSink.config_def().parse(self.config).values)
        (answer,) = IcebergWriter("sink", settings)(batches)
        return int(answer.column("rows")[0].as_py())

    def catalog(self) -> Any:
        return settings_of(IcebergSink.config_def().parse(self.config).values).opened()

    def table(self) -> Any:
        return opened(self.catalog(), f"{self.namespace}.orders")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table().scan().to_arrow().sort_by("id").to_pylist()
        return found

    def ids(self) -> list[int]:
        return [each["id"] for each in self.rows()]

    def faults(self) -> dict[str, str]:
        found = parse_config(IcebergSink, self.config).violations
        return {each.field: each.description for each in found}


def sink_of(
    server: IcebergRest, changed: Mapping[str, str] | None = None, *, gate: HttpGate | None = None
) -> Sink:
    namespace = f"own_{next(_numbers)}"
    config = {
        "name": "sink",
        "connector.class": "IcebergSink",
        "topics": "orders",
        **server.settings,
        "iceberg.tables": f"{namespace}.${{topic}}",
        "iceberg.tables.auto-create-enabled": "true",
        **(changed or {}),
    }
    if gate is not None:
        config["iceberg.catalog.uri"] = gate.address
    return Sink(config, namespace)


def keyed(first: int, ids: range) -> Any:
    rows = [{"id": n, "city": f"at {first}"} for n in ids]
    return records(rows, first=first, keys=[{"id": n} for n in ids])


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/tables/orders")


def test_tables_are_created_written_and_extended(iceberg_rest: IcebergRest) -> None:
    by = {"iceberg.tables.default-partition-by": "city"}
    sink = sink_of(iceberg_rest, by)
    assert sink.faults() == {}
    assert sink.write(orders(0, 5), orders(5, 5)) == 10
    assert sink.write(orders(0, 12)) == 2
    assert sink.ids() == list(range(12))
    assert sink.table().location().startswith(iceberg_rest.warehouse)
    assert [each.name for each in sink.table().spec().fields] == ["city"]
    more = records([{"id": 12, "city": "x", "new": 1.5}], first=12)
    with pytest.raises(RefusedRecordError, match="has no column 'new'"):
        sink.write(more)
    assert sink.changed(**EVOLVES).write(more) == 1
    assert sink.rows()[-1] == {"id": 12, "city": "x", "new": 1.5}


def test_rows_replace_those_of_their_key_and_are_deleted(iceberg_rest: IcebergRest) -> None:
    sink = sink_of(iceberg_rest, UPSERT)
    sink.write(keyed(0, range(5)))
    sink.write(keyed(5, range(3, 8)))
    assert [each["city"] for each in sink.rows()] == [*["at 0"] * 3, *["at 5"] * 5]
    sink.write(records([None, {"id": 1, "city": "new"}], first=10, keys=[{"id": 0}, {"id": 1}]))
    assert sink.rows()[0] == {"id": 1, "city": "new"}
    assert sink.ids() == list(range(1, 8))


@pytest.mark.parametrize("changed", [{}, UPSERT], ids=["append", "upsert"])
def test_a_writer_that_another_was_before_looks_again(
    iceberg_rest: IcebergRest, changed: dict[str, str]
) -> None:
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, changed, gate=gate)
        other: list[Request] = []
        sink.write(keyed(0, range(1)))

        def rule(request: Request) -> None:
            """The other writer commits while this one's commit is in flight."""
            if is_commit(request) and not other:
                other.append(request)
                sink.write(keyed(1, range(1, 6)))

        gate.rule = rule
        assert sink.write(keyed(1, range(1, 9))) == 3
    assert other
    assert sink.changed(**iceberg_rest.settings).ids() == list(range(9))


def test_what_a_catalogue_in_trouble_answers_is_tried_again(iceberg_rest: IcebergRest) -> None:
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, gate=gate)
        sink.write(orders(0, 5))
        for n, status in enumerate((LOST, 429, 500, 502, 503, 504), 1):
            gate.once(status, "POST", "/tables/orders")
            with pytest.raises(RetriableError, match=r"table own_\d+\.orders: "):
                sink.write(orders(5 * n, 5))
            # after a lost response the writer retries, although the records are committed
            assert sink.write(orders(5 * n, 5)) == (0 if status == LOST else 5)
            assert sink.ids() == list(range(5 * n + 5))
        for method, path in (("GET", "/v1/config"), ("GET", "/tables/orders")):
            gate.once(503, method, path)
            with pytest.raises(RetriableError):
                sink.write(orders(35, 5))


@pytest.mark.parametrize("changed", [{}, UPSERT], ids=["append", "upsert"])
def test_a_commit_that_a_proxy_repeats_is_no_other_writer(
    iceberg_rest: IcebergRest, changed: dict[str, str]
) -> None:
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, changed, gate=gate)
        sink.write(keyed(0, range(5)))
        gate.once(TWICE, "POST", "/tables/orders")
        assert sink.write(keyed(5, range(3, 10))) == 7
        wanted = [*range(3), *range(3, 10)] if changed else sorted([*range(5), *range(3, 10)])
        assert sink.ids() == wanted
        assert sink.write(keyed(5, range(3, 10))) == 0


def test_who_may_not_write_is_told_so(iceberg_rest: IcebergRest) -> None:
    """The tests' catalogue has no authentication; the proxy adds it."""

    def rule(request: Request) -> int | None:
        if request.path.endswith("/oauth/tokens"):
            return 401
        return None if request.headers.get("Authorization") == "Bearer right" else 401

    uri = "iceberg.catalog.uri"
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, {"iceberg.catalog.token": "right"}, gate=gate)
        gate.rule = rule
        assert sink.faults() == {}
        assert "cannot be used" in sink.changed(**{"iceberg.catalog.token": "wr0ng"}).faults()[uri]
        credential = {**sink.config, "iceberg.catalog.credential": "me:s3cret"}
        del credential["iceberg.catalog.token"]
        told = replace(sink, config=credential).faults()[uri]
        assert "cannot be used" in told
        assert "s3cret" not in told
        gate.rule = lambda request: 403 if is_commit(request) else None
        with pytest.raises(TableError, match="Forbidden"):
            sink.write(orders(0, 5))


@pytest.mark.parametrize(
    ("method", "ending", "predicted", "fails"),
    [
        ("GET", "/v1/config", "error", ("new", "existing")),
        ("GET", "/namespaces", "skipped: the list of namespaces", ()),
        ("GET", "/tables/orders", "error", ("new", "existing")),
        ("POST", "/namespaces", "skipped: the right to create", ("new",)),
        ("POST", "/tables", "skipped: the right to create", ("new",)),
        ("POST", "/tables/orders", "skipped: the right to create", ("new", "existing")),
    ],
)
def test_a_right_that_the_catalogue_does_not_grant_is_named(
    iceberg_rest: IcebergRest, method: str, ending: str, predicted: str, fails: tuple[str, ...]
) -> None:
    def rule(request: Request) -> int | None:
        is_named = request.path.partition("?")[0].endswith(ending)
        return 403 if request.method == method and is_named else None

    remedy = "answered 403 (0 bytes): check the credentials, and grant them this right"
    with http_gate(iceberg_rest.port) as gate:
        for state in ("new", "existing"):
            gate.rule = lambda _: None
            sink = sink_of(iceberg_rest, gate=gate)
            if state == "existing":
                sink.write(orders(0, 1))
            gate.rule = rule
            values = validate_config(IcebergSink, sink.config)
            errors = [text for each in values for text in each.errors]
            skipped = [text for each in values for text in each.skipped_checks]
            if predicted == "error":
                assert remedy in errors[0]
            else:
                assert errors == []
                assert any(each.startswith(predicted.removeprefix("skipped: ")) for each in skipped)
            if state not in fails:
                assert sink.write(orders(0, 3)) in (2, 3)
                continue
            with pytest.raises(TableError) as caught:
                sink.write(orders(0, 3))
            assert str(caught.value).count(remedy) == 1


def test_an_existing_namespace_needs_no_right_to_create_it(iceberg_rest: IcebergRest) -> None:
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, gate=gate)
        sink.catalog().create_namespace(sink.namespace)
        gate.rule = lambda request: 403 if is_namespace(request) else None
        assert sink.write(orders(0, 3)) == 3


def is_namespace(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/namespaces")


def test_a_config_is_tried_at_the_catalogue(iceberg_rest: IcebergRest) -> None:
    create, uri = "iceberg.tables.auto-create-enabled", "iceberg.catalog.uri"
    sink = sink_of(iceberg_rest)
    told = sink.changed(**{create: "false"}).faults()[create]
    assert f"table '{sink.namespace}.orders' does not exist" in told
    told = sink.changed(**{uri: "http://127.0.0.1:1"}).faults()[uri]
    assert "cannot be used: catalogue 'iceberg': " in told
    for wrong in ("127.0.0.1:8181", "catalogue", "https://"):
        told = sink.changed(**{uri: wrong}).faults()[uri]
        assert told == "must be the address of the REST catalogue, such as https://catalogue:8181"
    assert uri in sink.changed(**{uri: f"{iceberg_rest.address}/other"}).faults()


def test_tables_that_others_drop_or_change_are_told(iceberg_rest: IcebergRest) -> None:
    sink = sink_of(iceberg_rest)
    sink.write(records([{"id": 1, "city": 7}]))
    more = records([{"id": 2, "city": 8}], first=1)
    with sink.table().update_schema() as update:
        update.delete_column("city")
    with pytest.raises(RefusedRecordError, match="has no column 'city'"):
        sink.write(more)
    with sink.table().update_schema() as update:
        update.add_column("city", BooleanType())
    with pytest.raises(RefusedRecordError, match="'city' of the table is bool, and the records"):
        sink.write(more)
    sink.catalog().drop_table(f"{sink.namespace}.orders")
    create = {"iceberg.tables.auto-create-enabled": "false"}
    with pytest.raises(TableError, match="the table does not exist: create it, or set"):
        sink.changed(**create).write(more)
    assert sink.write(more) == 1
    assert sink.rows() == [{"id": 2, "city": 8}]


def test_a_catalogue_that_falls_silent_is_not_waited_for(
    iceberg_rest: IcebergRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(iceberg_rest)
    sink.write(orders(0, 5))
    iceberg_rest.process.freeze()
    try:
        monkeypatch.setattr(rest_catalog, "TIMEOUTS_S", (30, 0.2))
        with pytest.raises(RetriableError, match="timed out"):
            sink.write(orders(5, 5))
    finally:
        iceberg_rest.process.thaw()
    monkeypatch.undo()
    sink.write(orders(5, 5))
    assert sink.ids() == list(range(10))


@pytest.mark.usefixtures("iceberg_rest")
def test_tables_are_in_object_stores_with_the_catalogues_credentials(s3: S3) -> None:
    key, secret = s3.settings["aws.access.key.id"], s3.settings["aws.secret.access.key"]
    with running_iceberg_rest(
        f"s3://{s3.bucket}/lake",
        io__impl="org.apache.iceberg.aws.s3.S3FileIO",
        http__client_type="urlconnection",
        client_region="us-east-1",
        s3_endpoint=s3.endpoint,
        s3_path__style__access="true",
        s3_access__key__id=key,
        s3_secret__access__key=secret,
        include__credentials="true",
    ) as server:
        store = {
            "iceberg.catalog.s3.endpoint": s3.endpoint,
            "iceberg.catalog.s3.region": "us-east-1",
        }
        sink = sink_of(server, store)
        assert sink.write(orders(0, 5)) == 5
        assert sink.write(orders(2, 5)) == 2
        assert sink.ids() == list(range(7))
        assert sink.table().location().startswith(f"s3://{s3.bucket}/lake/")


@pytest.mark.faults("connectors")
@pytest.mark.parametrize("changed", [{}, UPSERT], ids=["append", "upsert"])
def test_a_catalogue_that_is_killed_loses_and_doubles_nothing(
    iceberg_rest: IcebergRest, changed: dict[str, str]
) -> None:
    with http_gate(iceberg_rest.port) as gate:
        sink = sink_of(iceberg_rest, changed, gate=gate)
        sink.write(keyed(0, range(5)))

        def rule(request: Request) -> None:
            if is_commit(request):
                iceberg_rest.process.kill()

        gate.rule = rule
        with pytest.raises(RetriableError):
            sink.write(keyed(5, range(5, 10)))
        with pytest.raises(RetriableError, match="catalogue 'iceberg': "):
            sink.write(keyed(5, range(5, 10)))
        gate.rule = lambda _: None
        iceberg_rest.start()
        assert sink.write(keyed(5, range(5, 12))) == 7
        assert sink.ids() == list(range(12))
