"""The definitions of the docs pages, run as documented except for addresses and logins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drover.connector import SinkConnector, SourceConnector
from drover.connector.catalogue import PluginRegistry
from tests.spark.pipeline import Pipeline
from tests.support.docs_examples import config_of
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.postgres import Postgres
from tests.support.s3 import S3
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

Run = Callable[..., int]


@pytest.fixture
def run(pipeline: Pipeline) -> Run:
    """Runs a page's definition until it has moved records; returns their number."""

    def until_moved(page: str, name: str, **changed: str) -> int:
        here = pipeline.directory.as_posix()
        raw = {
            setting: text.replace("/tmp/", f"{here}/")
            for setting, text in {**config_of(page, name), **changed}.items()
        }
        kind = PluginRegistry().find(raw["connector.class"])
        if issubclass(kind, SinkConnector):
            return pipeline.start_sink(kind, raw).run_until_idle()
        assert issubclass(kind, SourceConnector)
        source = pipeline.start_source(kind, raw)
        moved = 0

        def has_moved() -> bool:
            nonlocal moved
            receipt = source.step()
            moved += receipt.record_count if receipt is not None else 0
            return moved > 0 and receipt is None

        wait_until(has_moved, describe=lambda: f"{name} of {page} to move {moved} records")
        return moved

    return until_moved


def orders(run: Run, count: int = 100) -> None:
    """The topic orders, with keys."""
    few = {"max.records": str(count), "key": "order_id"}
    assert run("files-and-datagen", "orders", **few) == count


def test_files_and_made_up_rows(run: Run, pipeline: Pipeline) -> None:
    page, here = "files-and-datagen", pipeline.directory
    orders(run)
    for name in ("orders-by-month", "orders-files", "orders-shown", "orders-measured"):
        assert run(page, name) == 100
    assert list((here / "orders").glob("month=*/*.parquet"))
    assert list((here / "orders").glob("*.json"))
    (here / "incoming").mkdir()
    (here / "incoming" / "a.csv").write_text("id,name\n1,one\n2,two\n")
    assert run(page, "incoming") == 2
    (here / "lines.txt").write_text("one\ntwo\n")
    assert run(page, "lines") == 2
    assert run(page, "lines-copy") == 2
    assert (here / "lines-copy.txt").read_text() == "one\ntwo\n"


def test_http_apis(run: Run) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/token":
            return Reply({"access_token": "t", "expires_in": 60})
        if request.method == "POST":
            return Reply({})
        assert request.headers["authorization"] == "Bearer x"
        return Reply({"data": [{"id": 1, "updated_at": "2026-01-01"}], "meta": {}})

    orders(run)
    with running_api(answer) as api:
        login = {"http.headers.authorization": "Bearer x"}
        assert run("http", "issues", **{"http.url": f"{api.url}/issues"}, **login) == 1
        assert run("http", "orders-api", **sink_places(api)) == 100
        sent = [each for each in api.requests if each.path == "/orders"]
    assert {each.headers["authorization"] for each in sent} == {"Bearer t"}


def sink_places(api: Api) -> dict[str, str]:
    return {
        "http.url": f"{api.url}/${{topic}}",
        "oauth2.access.token.url": f"{api.url}/token",
        "oauth2.client.secret": "s",
    }


def test_lakehouses(run: Run, tmp_path: Path) -> None:
    orders(run)
    assert run("lakehouse", "orders-delta", **{"table.uri": f"{tmp_path}/${{topic}}"}) == 100
    catalogue = {
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{tmp_path}/catalogue.db",
        "iceberg.catalog.warehouse": f"file://{tmp_path}/warehouse",
    }
    assert run("lakehouse", "orders-iceberg", **catalogue) == 100


def test_object_stores(run: Run, s3: S3) -> None:
    orders(run)
    assert run("object-stores", "orders-lake", path=f"s3://{s3.bucket}/x", **s3.settings) == 100
    bucket = {"s3.bucket.name": s3.bucket, **s3.settings}
    assert run("object-stores", "orders-s3", **bucket) == 100
    found = s3.names()
    assert any(each.startswith("x/month=2024-01/") for each in found)
    assert any(each.startswith("topics/orders/year=2024/month=01/day=01/") for each in found)


def test_databases(run: Run, postgres: Postgres) -> None:
    for table in ("orders", "customers"):
        postgres.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, changed_at TIMESTAMP NOT NULL)",
            f"INSERT INTO {table} SELECT n, '2026-01-01' FROM generate_series(1, 9) AS n",
        )
    assert run("jdbc", "shop", **postgres.settings) == 18
    assert run("jdbc", "shop-copy", **postgres.settings) == 9
    assert postgres.rows('SELECT count(*) FROM "shop-orders"') == [(9,)]


def test_change_capture(run: Run, postgres: Postgres) -> None:
    for table in ("orders", "customers"):
        postgres.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY)",
            f"INSERT INTO {table} SELECT generate_series(1, 9)",
        )
    # tests/e2e/test_examples.py follows the changes
    once = {"snapshot.mode": "initial_only"}
    assert run("postgres-cdc", "shop", **postgres.cdc_settings, **once) == 18
