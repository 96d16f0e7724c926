"""Files on a real S3 server: each counts once, also when a writer is paused or killed."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

import obstore
import pytest

from drover.connector import RetriableError, TopicPartition
from drover.connector.settings import parse_config
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.storage.object_directory import (
    CONFLUENT_NAMES,
    OWN_NAMES,
    FileNaming,
    NamedFile,
    ObjectDirectory,
)
from drover.connectors.files.storage.object_store import ObjectPlace, ObjectStoreError, place_of
from drover.connectors.files.storage.output_directory import StagedFile, UnknownOutputError
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


def directory(s3: S3, claim: int, naming: FileNaming = OWN_NAMES) -> ObjectDirectory:
    return ObjectDirectory(
        place(s3), connector="sink", claim=Term(1, claim), extension="json", naming=naming
    )


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
    with pytest.raises(FailedPreconditionError):
        first.publish([staged(first, "late", 30, 40)])


@pytest.mark.parametrize("naming", [OWN_NAMES, CONFLUENT_NAMES], ids=["own", "confluent"])
@pytest.mark.parametrize("extension", ["json", "json.gz", "lz4.parquet"])
def test_a_files_name_says_what_it_has(naming: FileNaming, extension: str) -> None:
    file = StagedFile("x", "", "a-1+b.c", 12, 345, 678)
    for output_id in ("", "0a1b2c3d"):
        name = naming.name(file, "0123abcd", output_id, extension)
        end = 678 if naming is OWN_NAMES else 346
        found = NamedFile("a-1+b.c", 12, output_id, 345, end)
        assert naming.parsed(name, "0123abcd") == found
        if naming is OWN_NAMES:
            assert naming.parsed(name, "ffffffff") is None


def test_names_in_confluents_form_are_read_by_its_source() -> None:
    """Its default pattern of file names."""
    file = StagedFile("x", "", "orders-2", 12, 345, 678)
    first, second = (CONFLUENT_NAMES.name(file, "", each, "json") for each in ("", "0a1b2c3d"))
    assert (first, second) == (
        "orders-2+12+0000000345.json",
        "orders-2+12+0000000345-0a1b2c3d.json",
    )
    for name in (first, second):
        match = re.fullmatch(r"(.+)\+(\d+)\+.+$", name)
        assert match is not None
        assert match.groups() == ("orders-2", "12")


@pytest.mark.parametrize("naming", [OWN_NAMES, CONFLUENT_NAMES], ids=["own", "confluent"])
def test_objects_of_a_deleted_topic_stay_when_its_name_is_used_again(
    s3: S3, naming: FileNaming
) -> None:
    key, other = TopicPartition("orders", 0), "0a1b2c3d"
    first = directory(s3, 1, naming)
    first.take_over("orders", 0, 0, is_committed=False)
    first.publish([staged(first, "x", 0, 10)])
    second = directory(s3, 2, naming)
    assert second.take_over("orders", 0, 0, output_id=other, is_committed=False) == 0
    second.publish([staged(second, "y", 0, 3)])
    assert lines(s3) == sorted([*range(10), *range(3)])
    # killed before the commit
    third = directory(s3, 3, naming)
    assert third.take_over("orders", 0, 0, output_id=other) == 3
    third.publish([staged(third, "z", 3, 5)])
    assert lines(s3) == sorted([*range(10), *range(5)])
    with pytest.raises(FailedPreconditionError, match="was taken over by another task"):
        first.publish([staged(first, "late", 10, 11)])
    reader = directory(s3, 0, naming)
    assert reader.written_offsets({key: ""}) == {key: 10}
    assert reader.written_offsets({key: other}) == {key: 5}
    assert reader.written_offsets({key: "ffffffff"}) == {}
    reader.set_back("orders", 0, 3)  # only in the present output
    assert lines(s3) == sorted([*range(10), *range(3)])


def test_without_a_committed_offset_no_object_is_written_over(s3: S3) -> None:
    first = directory(s3, 1, CONFLUENT_NAMES)
    first.take_over("orders", 0, 0)
    first.publish([staged(first, "x", 0, 10)])
    with pytest.raises(UnknownOutputError, match="up to offset 10, but no offset is committed"):
        directory(s3, 2, CONFLUENT_NAMES).take_over("orders", 0, 8, is_committed=False)
    assert directory(s3, 3).take_over("orders", 0, 10, is_committed=False) == 10


def test_objects_without_a_log_show_how_far_they_go(s3: S3) -> None:
    """Of Confluent's connector, or after the log was removed."""
    orders, others = TopicPartition("orders", 0), TopicPartition("others", 0)
    for name in (
        "topics/orders/partition=0/orders+0+0000000000.json",
        "topics/orders/partition=0/orders+0+0000000020.json",
        "topics/orders/partition=1/orders+1+0000000090.json",
        "topics/orders/partition=0/orders+0+note.json",
    ):
        obstore.put(s3.store(), f"a b/{name}", b"x")
    reader = directory(s3, 1, CONFLUENT_NAMES)
    assert reader.written_offsets({orders: "", others: ""}) == {orders: 21}
    assert reader.written_offsets({orders: "0a1b2c3d"}) == {}
    own = directory(s3, 2)
    own.take_over("orders", 0, 0)
    own.publish([staged(own, "x", 0, 10)])
    log = [each["path"] for each in obstore.list(s3.store()).collect() if "/log/" in each["path"]]
    obstore.delete(s3.store(), log)
    assert own.written_offsets({orders: "", others: ""}) == {orders: 10}


def test_a_log_of_an_earlier_version_is_read(s3: S3) -> None:
    first = directory(s3, 1)
    first.take_over("orders", 0, 0)
    first.publish([staged(first, "x", 0, 10)])
    (log,) = [
        each["path"] for each in obstore.list(s3.store()).collect() if "/log/" in each["path"]
    ]
    entry = json.loads(bytes(obstore.get(s3.store(), log).bytes()))
    old = {name: entry[name] for name in ("owner", "id", "end_offset", "files")}
    obstore.put(s3.store(), log, json.dumps(old).encode())
    key = TopicPartition("orders", 0)
    assert directory(s3, 0).written_offsets({key: ""}) == {key: 10}
    assert directory(s3, 2).take_over("orders", 0, 0) == 10


def test_a_reset_leaves_the_files_and_a_set_back_offset_removes_them(s3: S3) -> None:
    raw = {
        "name": "sink",
        "connector.class": "FilesSink",
        "topics": "orders",
        "path": f"s3://{s3.bucket}/a b",
        "format": "json",
        **s3.settings,
    }
    config = {**FilesSink.config_def().parse(raw).values, "name": "sink"}
    owner = directory(s3, 1)
    owner.take_over("orders", 0, 0)
    owner.publish([staged(owner, "x", 0, 10), staged(owner, "y", 10, 20)])
    place = {"kafka_topic": "orders", "kafka_partition": 0}
    FilesSink.alter_offsets(config, [])
    FilesSink.alter_offsets(config, [(place, None)])
    assert lines(s3) == list(range(20))
    key = TopicPartition("orders", 0)
    assert FilesSink.traced_offsets("sink", config, {key: ""}) == {key: 20}
    FilesSink.alter_offsets(config, [(place, {"kafka_offset": 10})])
    assert lines(s3) == list(range(10))
    assert FilesSink.traced_offsets("sink", config, {key: ""}) == {key: 10}


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
