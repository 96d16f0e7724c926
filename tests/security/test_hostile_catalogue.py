"""Catalogues and tables of Iceberg that name code or files of the worker."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from drover.connector.settings import parse_config, validate_config
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import IcebergWriter, opened
from drover.policy.client_settings import POLICY_VARIABLE
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE, ForbiddenPathError
from tests.support.lake_records import orders

CODE = "a_canary.Class"
#: The properties with classes that PyIceberg imports.
NAMES = (
    "py-io-impl",
    "py-catalog-impl",
    "s3.retry-strategy-impl",
    "write.py-location-provider.impl",
)
CUSTOM_AUTH = {"type": "custom", "impl": CODE, "custom": {}}


@dataclass
class Catalogue:
    """The answers of a REST catalogue with one table, ``app.orders``."""

    directory: Path
    url: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    credentials: dict[str, Any] = field(default_factory=dict)
    location: str = ""

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path.startswith("/v1/config"):
            return 200, {"defaults": self.defaults, "overrides": self.overrides}
        if path.endswith("/tables/orders"):
            return 200, self._table()
        if path.startswith("/v1/namespaces"):
            return 200, {"namespaces": [["app"]]}
        return 404, {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}}

    def _table(self) -> dict[str, Any]:
        location = self.location or f"file://{self.directory}/orders"
        metadata = {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [
                {
                    "type": "struct",
                    "schema-id": 0,
                    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
                }
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
        }
        sent = {"prefix": location, "config": self.credentials}
        return {
            "metadata-location": f"{location}/metadata/1.metadata.json",
            "metadata": metadata,
            "config": self.config,
            "storage-credentials": [sent] if self.credentials else [],
        }


@contextmanager
def running(catalogue: Catalogue) -> Iterator[Catalogue]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = catalogue.answer(self.path.partition("?")[0])
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    catalogue.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield catalogue
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with running(Catalogue(tmp_path)) as found:
        yield found


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a file when it is imported; no test may import it."""
    pwned, modules = tmp_path / "pwned", tmp_path / "modules"
    modules.mkdir()
    text = f"open({str(pwned)!r}, 'w').close()\nclass Class:\n    def __init__(*a, **k): pass\n"
    (modules / "a_canary.py").write_text(text)
    monkeypatch.syspath_prepend(str(modules))
    yield pwned
    assert "a_canary" not in sys.modules
    assert not pwned.exists()


def raw(catalogue: Catalogue, **changed: str) -> dict[str, str]:
    return {
        "name": "a-x",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "iceberg.catalog.uri": catalogue.url,
        "iceberg.tables": "app.orders",
        **changed,
    }


def faults(config: dict[str, str]) -> dict[str, str]:
    found = validate_config(IcebergSink, config)
    return {each.key.name: each.errors[0] for each in found if each.errors}


def told(catalogue: Catalogue) -> str:
    """The only fault of a config that names no code: the catalogue's address."""
    found = faults(raw(catalogue))
    assert found.keys() == {"iceberg.catalog.uri"}
    return found["iceberg.catalog.uri"]


def test_an_honest_catalogue_has_no_faults(catalogue: Catalogue) -> None:
    catalogue.overrides = {"prefix": "", "s3.endpoint": "http://127.0.0.1:1"}
    catalogue.config = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}
    catalogue.properties = {"write.parquet.compression-codec": "zstd", "owner": "me"}
    assert faults(raw(catalogue)) == {}


@pytest.mark.parametrize("policy", ["none", "allowlist", "all"])
@pytest.mark.parametrize("name", [*NAMES, "auth", "auth.impl", "s3.signer", "botocore_session"])
def test_a_config_must_not_name_code(
    catalogue: Catalogue, name: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, policy)
    setting = f"iceberg.catalog.{name}"
    config = raw(catalogue, **{setting: CODE})
    assert faults(config).keys() == {setting}
    assert "names code" in faults(config)[setting]
    with pytest.raises(ValueError, match="names code"):
        settings_of(parse_config(IcebergSink, config).values)


def test_a_config_must_not_run_a_command_through_popen(catalogue: Catalogue, canary: Path) -> None:
    catalogue.defaults = {"/bin/sh": "", "-c": "", f"touch {canary}": ""}
    setting = "iceberg.catalog.py-io-impl"
    found = faults(raw(catalogue, **{setting: "subprocess.Popen"}))
    assert "whatever the worker's administrator sets" in found[setting]


def test_a_catalogue_must_not_run_a_command_through_popen(
    catalogue: Catalogue, canary: Path
) -> None:
    catalogue.defaults = {
        "/bin/sh": "",
        "-c": "",
        f"touch {canary}": "",
        "py-io-impl": "subprocess.Popen",
    }
    assert "sends the property 'py-io-impl'" in told(catalogue)


@pytest.mark.parametrize("place", ["defaults", "overrides", "config", "properties", "credentials"])
@pytest.mark.parametrize("name", NAMES)
def test_a_catalogue_must_not_name_code(catalogue: Catalogue, place: str, name: str) -> None:
    setattr(catalogue, place, {name: CODE})
    assert f"sends the property {name!r}, which names code" in told(catalogue)


@pytest.mark.parametrize("place", ["defaults", "overrides"])
@pytest.mark.parametrize("sent", [{"auth": CUSTOM_AUTH}, {"auth.impl": CODE}])
def test_a_catalogue_must_not_name_its_login(
    catalogue: Catalogue, place: str, sent: dict[str, Any]
) -> None:
    setattr(catalogue, place, sent)
    (name,) = sent
    assert f"sends the property {name!r}, which names code" in told(catalogue)


def test_a_classes_of_the_library_itself_are_ignored(catalogue: Catalogue) -> None:
    catalogue.overrides = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "io-impl": "org.X"}
    assert faults(raw(catalogue)) == {}


def test_properties_that_servers_may_not_set_are_ignored(
    catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "drover.connectors.lakehouse.server_properties")
    catalogue.overrides = {
        "ssl": {"cabundle": "/etc/passwd", "client": {"cert": "/certs/service.pem"}},
        "s3.proxy-uri": "http://127.0.0.1:1",
        "oauth2-server-uri": "http://127.0.0.1:1",
        "credential": "a:b",
        "header.Authorization": "x",
        "s3.profile-name": "admin",
        "DEFAULT_SCHEME": "hdfs",
        "header.X-Tenant": "t",
        "prefix": "",
    }
    config = raw(catalogue, **{"iceberg.catalog": "hostile"})
    settings = settings_of(IcebergSink.config_def().parse(config).values)
    found = settings.opened()
    settings.opened()
    own = ("uri", "type", "prefix", "header.X-Tenant", "py-io-impl")
    assert sorted(found.properties) == sorted(own)
    assert "'s3.proxy-uri' from the server is ignored" in caplog.text
    assert caplog.text.count("'ssl' from the server") == 1


def test_a_catalogue_must_not_name_forbidden_servers(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.overrides = {"s3.endpoint": "http://169.254.169.254"}
    assert "'s3.endpoint' from the catalogue" in told(catalogue)
    monkeypatch.setenv(HOSTS_VARIABLE, catalogue.url.removeprefix("http://"))
    catalogue.overrides = {"uri": "http://localhost:1"}
    assert "localhost:1 is not a host that connectors may call" in told(catalogue)


def test_a_catalogue_must_not_send_a_table_outside_of_the_roots(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, str(tmp_path / "files"))
    catalogue.location = f"file://{tmp_path}/outside"
    assert f"must be below {tmp_path}/files (DROVER_FILE_ROOTS" in told(catalogue)


def lake(root: Path) -> dict[str, str]:
    return {
        "name": "a-x",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{root}/catalogue.db",
        "iceberg.catalog.warehouse": f"file://{root}/warehouse",
        "iceberg.tables": "app.orders",
        "iceberg.tables.auto-create-enabled": "true",
    }


def write(config: dict[str, str], start: int) -> None:
    settings = settings_of(parse_config(IcebergSink, config).values)
    list(IcebergWriter("a-x", settings)([orders(start, 5)]))


@pytest.mark.parametrize("form", ["file://{}", "{}", "file:{}"])
@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_properties_of_a_table_must_not_lead_outside_of_the_roots(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "files", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write(lake(root), 0)
    library = SqlCatalog(
        "iceberg", uri=f"sqlite:///{root}/catalogue.db", warehouse=f"file://{root}/warehouse"
    )
    with library.load_table("app.orders").transaction() as transaction:
        transaction.set_properties({name: form.format(outside)})
    before = sorted(outside.rglob("*"))  # the library itself wrote metadata there
    library.engine.dispose()
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    with pytest.raises((ForbiddenPathError, TableError), match=r"must be below .*files"):
        write(lake(root), 5)
    assert sorted(outside.rglob("*")) == before


def test_a_database_must_not_name_metadata_outside_of_the_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "files"
    root.mkdir()
    write(lake(root), 0)
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": "CANARY-SECRET"}')
    library = SqlCatalog("iceberg", uri=f"sqlite:///{root}/catalogue.db")
    with library.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE iceberg_tables SET metadata_location = ?", (f"file://{secret}",)
        )
    library.engine.dispose()
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    found = faults(lake(root))["iceberg.catalog.uri"]
    assert "must be below" in found
    assert "CANARY" not in found


@pytest.mark.parametrize("location", ["hdfs://127.0.0.1/x", "hf://x/y", "memory://x"])
def test_other_file_systems_are_rejected(location: str, tmp_path: Path) -> None:
    config = lake(tmp_path)
    write(config, 0)
    catalogue = settings_of(parse_config(IcebergSink, config).values).opened()
    table = opened(catalogue, "app.orders")
    assert table is not None
    with pytest.raises(ForbiddenPathError, match="must be on a disk, or in S3, GCS or Azure"):
        table.io.new_input(location)
