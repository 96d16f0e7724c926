"""Files on a real S3 server: each counts once, also when a writer is paused or killed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

import obstore
import pytest

from drover.connector import RetriableError
from drover.connector.settings import parse_config
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.storage.object_directory import (
    CONFLUENT_NAMES,
    OWN_NAMES,
    FileNaming,
    ObjectDirectory,
)
from drover.connectors.files.storage.object_store import ObjectPlace, ObjectStoreError, place_of
from drover.connectors.files.storage.output_directory import StagedFile
from drover.errors import FailedPreconditionError
from drover.model.ids import Term
from tests.support.s3 import S3


def place(s3: S3, **changed: str) -> ObjectPlace:
    raw = {
        "name": "sink",
        "connector.class": "FilesSink",
        "topics": "orders",
        "path": f"s3://{s3.bucket}/a b",
        **s3.settings,
        **changed,
    }
    return place_of(raw["path"], FilesSink.config_def().parse(raw).values)


def directory(s3: S3, claim: int) -> ObjectDirectory:
    return ObjectDirectory(place(s3), connector="sink", claim=Term(1, claim), extension="json")


def staged(
    owner: ObjectDirectory, name: str, start: int, end: int, *, below: str = ""
) -> StagedFile:
    """Upload a file of lines from offset ``start`` to ``end`` - 1."""
    staging = owner.staged()
    with staging.create("orders", 0, name) as file:
        file.write("".join(f"{n}\n" for n in range(start, end)).encode())
        staging.keep(file, "orders", 0, name)
    return StagedFile(name, below, "orders", 0, start, end)


def lines(s3: S3) -> list[int]:
    """All lines that a reader sees, in order."""
    names = s3.names("a b")
    data = (bytes(obstore.get(s3.store(), each).bytes()).decode() for each in names)
    return sorted(int(line) for each in data for line in each.splitlines())


def test_files_appear_when_they_are_published(s3: S3) -> None:
    owner = directory(s3, 1)
    assert owner.take_over("orders", 0, 0) == 0
    files = [
        staged(owner, "x", 0, 10),
        staged(owner, "y", 10, 20, below="city=São%2FPaulo/day=1"),
    ]
    assert s3.names() == []
    owner.publish(files)
    assert lines(s3) == list(range(20))
    first, second = s3.names()
    assert first.startswith(f"a b/city=São%2FPaulo/day=1/orders-0-{10:020d}-{20:020d}-")
    assert second.startswith(f"a b/orders-0-{0:020d}-{10:020d}-")


def test_what_was_written_and_not_committed_is_not_written_again(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    first.publish([staged(first, "x", 0, 10)])
    second = directory(s3, 2)
    assert second.take_over("orders", 0, 0) == 10
    second.publish([staged(second, "y", 10, 15)])
    assert lines(s3) == list(range(15))


def test_a_suspended_owner_puts_nothing_in_place(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    file = staged(first, "x", 0, 10)
    second = directory(s3, 2)
    second.take_over("orders", 0, 0)
    late = staged(first, "later", 0, 10)
    with pytest.raises(FailedPreconditionError, match="was taken over by another task"):
        first.publish([file, late])
    assert lines(s3) == []
    for n in range(3):  # its file numbers were removed and are free again
        second.publish([staged(second, f"y{n}", n, n + 1)])
    with pytest.raises(FailedPreconditionError, match="was taken over by another task"):
        first.publish([staged(first, "much later", 0, 10)])
    assert lines(s3) == [0, 1, 2]
    assert directory(s3, 3).take_over("orders", 0, 3) == 3


def test_a_store_that_tells_of_missing_objects_changes_nothing(s3: S3) -> None:
    delete = obstore.delete

    def telling(store: Any, paths: str | list[str]) -> None:
        """Delete as Google's and Azure's stores do: stop at the first missing object."""
        for each in [paths] if isinstance(paths, str) else paths:
            obstore.head(store, each)
            delete(store, each)

    with patch.object(obstore, "delete", telling):
        first, second = directory(s3, 1), directory(s3, 2)
        first.take_over("orders", 0, 0)
        removed = staged(first, "x", 0, 10)
        second.take_over("orders", 0, 0)
        kept = staged(first, "y", 0, 10)
        with pytest.raises(FailedPreconditionError, match="was taken over by another task"):
            first.publish([removed, kept])
        second.publish([staged(second, "z", 0, 10)])
    assert lines(s3) == list(range(10))
    side = [
        each["path"] for each in obstore.list(s3.store()).collect() if ".drover/" in each["path"]
    ]
    assert not [each for each in side if "/staged/" in each]


def test_files_of_an_owner_that_died_on_the_way_get_into_place(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    files = [staged(first, "x", 0, 10), staged(first, "y", 10, 20, below="d")]
    with (
        patch.object(obstore, "copy", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        first.publish(files)
    assert lines(s3) == []
    with (
        patch.object(obstore, "copy", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        directory(s3, 2).take_over("orders", 0, 0)
    assert directory(s3, 3).take_over("orders", 0, 0) == 20
    assert lines(s3) == list(range(20))


def test_an_answer_that_was_lost_is_no_other_owner(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    put, calls = obstore.put, []

    def twice(*args: object, **options: object) -> object:
        """As when a request is repeated after its response was lost."""
        calls.append(options)
        put(*args, **options)  # type: ignore[arg-type]
        return put(*args, **options)  # type: ignore[arg-type]

    file = staged(first, "x", 0, 10)
    with patch.object(obstore, "put", twice):
        first.publish([file])
    assert calls
    assert lines(s3) == list(range(10))


def test_offsets_that_are_set_back_are_written_again(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    for n in range(3):
        first.publish([staged(first, f"x{n}", 10 * n, 10 * n + 10)])
    directory(s3, 0).set_back("orders", 0, 10)
    assert lines(s3) == list(range(10))
    second = directory(s3, 2)
    assert second.take_over("orders", 0, 10) == 10
    second.publish([staged(second, "z", 10, 12)])
    assert lines(s3) == list(range(12))
    assert second.partitions() == [("orders", 0)]
    with pytest.raises(FailedPreconditionError):
        first.publish([staged(first, "late", 30, 40)])


@pytest.mark.parametrize("naming", [OWN_NAMES, CONFLUENT_NAMES], ids=["own", "confluent"])
@pytest.mark.parametrize("extension", ["json", "json.gz", "lz4.parquet"])
def test_a_files_name_says_what_it_has(naming: FileNaming, extension: str) -> None:
    file = StagedFile("x", "", "a-1+b.c", 12, 345, 678)
    name = naming.name(file, "0123abcd", extension)
    assert naming.start_of(name, "a-1+b.c", 12, "0123abcd") == 345
    assert naming.start_of(name, "a-1+b.c", 2, "0123abcd") is None
    assert naming.start_of(name, "b.c", 12, "0123abcd") is None
    assert naming.start_of(f"x{name}", "a-1+b.c", 12, "0123abcd") is None
    if naming is OWN_NAMES:
        assert naming.start_of(name, "a-1+b.c", 12, "ffffffff") is None


def test_nothing_is_left_of_a_probe(s3: S3) -> None:
    directory(s3, 1).probe()
    assert obstore.list(s3.store()).collect() == []


def faults(s3: S3, **changed: str) -> dict[str, str]:
    raw = {
        "name": "sink",
        "connector.class": "FilesSink",
        "topics": "orders",
        "path": f"s3://{s3.bucket}/x",
        **s3.settings,
        **changed,
    }
    return {each.field: each.description for each in parse_config(FilesSink, raw).violations}


def test_a_config_is_tried_at_the_store(s3: S3) -> None:
    assert faults(s3) == {}
    wrong = faults(s3, **{"aws.secret.access.key": "wrong"})
    assert "check the credentials" in wrong["path"]
    assert "wrong" not in wrong["path"]
    assert "must be a URL such as s3://" in faults(s3, path="ftp://x/y")["path"]
    told = faults(s3, **{"store.url": "http://127.0.0.1:1"})["path"]
    assert "cannot be written" in told
    assert "must be a URL" in faults(s3, **{"store.url": "minio:9000"})["store.url"]


@contextmanager
def answering(status: int, code: str = "") -> Iterator[tuple[str, list[str]]]:
    """A server with one response to all requests; yields its address and the requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_busy_store_is_asked_again_and_then_later(s3: S3) -> None:
    with answering(503) as (url, asked):
        busy = ObjectDirectory(
            place(s3, **{"store.url": url}), connector="sink", claim=Term(1, 1), extension="json"
        )
        with pytest.raises(RetriableError, match="503"):
            busy.probe()
    assert len(asked) > 3
    with answering(400) as (url, asked):
        refusing = ObjectDirectory(
            place(s3, **{"store.url": url}), connector="sink", claim=Term(1, 1), extension="json"
        )
        with pytest.raises(ObjectStoreError, match="400"):
            refusing.probe()
    assert len(asked) == 1


def test_stores_of_all_kinds_may_be_elsewhere(s3: S3) -> None:
    google = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
    azure = {"azblob.account.name": "a", "azblob.account.key": "a2V5"}
    for path, own in (
        ("gs://bucket/x", {"gcs.credentials.json": google}),
        ("az://bucket/x", azure),
        ("abfss://bucket@account.dfs.core.windows.net/x", azure),
    ):
        with answering(400) as (url, asked):
            told = faults(s3, **own, path=path, **{"store.url": url})
        assert "400" in told["path"]
        assert len(asked) == 1
        assert "/bucket/x" in asked[0]


def test_a_bucket_that_is_not_there_is_told(s3: S3) -> None:
    with answering(404, "NoSuchBucket") as (url, _):
        told = faults(s3, **{"store.url": url})
    assert "the bucket does not exist: create it" in told["path"]


def test_a_store_that_overwrites_is_refused(s3: S3) -> None:
    put = obstore.put

    def overwriting(*args: object, **options: object) -> object:
        return put(*args, **{**options, "mode": "overwrite"})  # type: ignore[arg-type]

    with (
        patch.object(obstore, "put", overwriting),
        pytest.raises(ObjectStoreError, match="overwrites objects"),
    ):
        directory(s3, 1).probe()
