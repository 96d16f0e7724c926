"""Iceberg tables whose catalogue, table or object store leads to other hosts and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from drover.connector import RetriableError
from drover.connector.settings import parse_config
from drover.connectors.lakehouse.checked_files import CheckedFileIO
from drover.connectors.lakehouse.fitted_rows import TableError
from drover.connectors.lakehouse.iceberg_errors import translated_errors
from drover.connectors.lakehouse.iceberg_sink import IcebergSink, settings_of
from drover.connectors.lakehouse.iceberg_table import IcebergWriter
from drover.policy.egress import HOSTS_VARIABLE, ForbiddenHostError
from drover.policy.files import ROOTS_VARIABLE, ForbiddenPathError
from tests.support.error_texts import logged
from tests.support.http_api import Reply, Request, running_api
from tests.support.lake_records import orders

SECRET = {"AccessKeyId": "CANARY", "SecretAccessKey": "CANARY"}


def config_of(**changed: str) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "iceberg.tables": "app.orders",
        "iceberg.tables.auto-create-enabled": "true",
        **{name.replace("__", "."): value for name, value in changed.items()},
    }


def rest(url: str, **changed: str) -> dict[str, str]:
    return config_of(iceberg__catalog__type="rest", iceberg__catalog__uri=url, **changed)


def opened(config: dict[str, str]) -> Any:
    return settings_of(IcebergSink.config_def().parse(config).values).opened()


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(SECRET), "ValidationError"),
        (Reply(b"CANARY"), "ValidationError"),
        (Reply(SECRET, 404), "answered 404"),
        (Reply({"error": {"message": "CANARY", "type": "CANARY", "code": 400}}, 400), "400"),
        (Reply(b"CANARY", 401), "answered 401"),
        (Reply(b"CANARY", 500), "answered 500"),
    ],
)
def test_a_catalogues_response_is_not_told(reply: Reply, told: str) -> None:
    with running_api(lambda _: reply) as api:
        with (
            pytest.raises((TableError, RetriableError), match=told) as caught,
            translated_errors("x"),
        ):
            opened(rest(api.url)).list_namespaces()
        assert "CANARY" not in logged(caught.value)
        (fault,) = parse_config(IcebergSink, rest(api.url)).violations
    assert "CANARY" not in fault.description


def test_a_catalogue_is_called_only_at_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply(b"{}")) as other:

        def answer(request: Request) -> Reply:
            if request.path == "/away/v1/config":
                return Reply(status=307, headers={"location": f"{other.url}/stolen"})
            return Reply({"defaults": {}, "overrides": {}})

        with running_api(answer) as api, running_api(lambda _: Reply()) as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            key = {"iceberg__catalog__header__X-Api-Key": "hidden"}
            opened(rest(api.url, **key))
            assert api.requests[-1].headers["x-api-key"] == "hidden"
            with pytest.raises(TableError, match="redirects to another host"):
                opened(rest(f"{api.url}/away", **key))
            monkeypatch.setenv(HOSTS_VARIABLE, "other.example")
            count = len(api.requests)
            with pytest.raises(ValueError, match="not a host that connectors may call"):
                opened(rest(api.url))
            assert len(api.requests) == count
        assert not other.requests
        assert not proxy.proxied_to(api)


def test_the_issuer_of_a_catalogues_tokens_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
    with running_api(lambda _: Reply()) as api:
        issuer = {"iceberg__catalog__oauth2-server-uri": "http://127.0.0.2:1/token"}
        with pytest.raises(ValueError, match=r"127\.0\.0\.2:1 is not a host"):
            opened(rest(api.url, iceberg__catalog__credential="a:b", **issuer))


@pytest.mark.parametrize("address", ["http://169.254.169.254/latest/", "http://[fd00:ec2::254]"])
def test_metadata_addresses_are_refused_without_a_connection(address: str) -> None:
    (fault,) = parse_config(IcebergSink, rest(address)).violations
    assert fault.field == "iceberg.catalog.uri"
    assert "must not call" in fault.description


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "files"
    root.mkdir()
    monkeypatch.setenv(ROOTS_VARIABLE, str(root))
    return root


def sql(root: Path, **changed: str) -> dict[str, str]:
    return config_of(
        iceberg__catalog__type="sql",
        iceberg__catalog__uri=f"jdbc:sqlite:{root}/catalogue.db",
        iceberg__catalog__warehouse=f"file://{root}/warehouse",
        **changed,
    )


def write(config: dict[str, str]) -> int:
    settings = settings_of(IcebergSink.config_def().parse(config).values)
    (answer,) = IcebergWriter("sink", settings)([orders(0, 3)])
    return int(answer.column("rows")[0].as_py())


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
@pytest.mark.parametrize("form", ["file://{}", "{}", "file://{}/../outside"])
def test_properties_of_a_table_do_not_lead_out_of_the_roots(
    root: Path, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = root.parent / "outside"
    assert write(sql(root)) == 3
    with monkeypatch.context() as unrestricted:  # as another program does
        unrestricted.delenv(ROOTS_VARIABLE)
        with opened(sql(root)).load_table("app.orders").transaction() as change:
            change.set_properties({name: form.format(root.parent / "outside")})
    before = sorted(outside.glob("**/*"))
    more = settings_of(IcebergSink.config_def().parse(sql(root)).values)
    with pytest.raises(ForbiddenPathError, match="must be below"):
        list(IcebergWriter("sink", more)([orders(3, 6)]))
    assert sorted(outside.glob("**/*")) == before


def test_a_path_relative_to_the_worker_is_refused(root: Path) -> None:
    files = CheckedFileIO({})
    for location in ("file://etc/passwd", "etc/passwd", "file:etc/passwd"):
        for use in (files.new_input, files.new_output, files.delete):
            with pytest.raises(ForbiddenPathError):
                use(location)


def test_a_property_cannot_replace_the_checks(root: Path) -> None:
    assert write(sql(root)) == 3
    table = opened(sql(root)).load_table("app.orders")
    with table.transaction() as change:
        change.set_properties({"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})
    assert isinstance(opened(sql(root)).load_table("app.orders").io, CheckedFileIO)


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        ("s3://b/x", {"s3.endpoint": "http://169.254.169.254/"}),
        ("s3://b/x", {"s3.endpoint": "169.254.169.254:80"}),
        ("s3://b/x", {"s3.endpoint": "http://127.0.0.1:1", "s3.proxy-uri": "http://169.254.1.1"}),
        ("gs://b/x", {"gcs.service.host": "http://169.254.169.254/"}),
        ("abfss://c@169.254.169.254/x", {}),
        ("abfss://c@a/x", {"adls.connection-string": "a=b;BlobEndpoint=http://169.254.169.254/;c"}),
    ],
)
def test_addresses_of_stores_are_checked(location: str, properties: dict[str, str]) -> None:
    with pytest.raises(ForbiddenHostError, match="must not call"):
        CheckedFileIO(properties).new_input(location)


def test_the_default_address_of_a_store_needs_to_be_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
    for location in ("s3://b/x", "gs://b/x"):
        with pytest.raises(OSError, match=r"not a host|resolve|Name or service|Temporary failure"):
            CheckedFileIO({}).new_input(location)


@pytest.mark.parametrize(
    "location", ["ftp://127.0.0.1/x", "oci://a/b", "hdfs://169.254.169.254:80/x"]
)
def test_other_stores_are_refused(location: str) -> None:
    with pytest.raises(ForbiddenPathError, match="must be on a disk, or in S3, GCS or Azure"):
        CheckedFileIO({}).new_input(location)


def test_the_response_of_an_object_store_is_not_told() -> None:
    body = json.dumps(SECRET).encode()
    with running_api(lambda _: Reply(body, 400)) as api:
        files = CheckedFileIO(
            {
                "s3.endpoint": api.url,
                "s3.access-key-id": "a",
                "s3.secret-access-key": "b",
                "s3.region": "eu",
            }
        )
        with (
            pytest.raises((TableError, RetriableError), match="AWS Error") as caught,
            translated_errors("table x"),
        ):
            files.new_input("s3://bucket/key").open().read()
    assert "CANARY" not in logged(caught.value)
