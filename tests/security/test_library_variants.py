"""Hostile servers and folders in forms that one check could miss: redirects, compressed responses,
keys, records, state files, modules.
"""

import asyncio
import gzip
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro.schema
import numpy as np
import psutil
import pyarrow as pa
import pytest

from drover.connector.settings import validate_config
from drover.connectors.http.client import HttpClient, HttpError
from drover.connectors.http.settings import BASIC, OAUTH2, OWN_HEADER, HttpSettings
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from drover.convert.avro.connect_schemas import connect_schema
from drover.convert.avro.decode import decode_records
from drover.convert.avro.schemas import parse_avro
from drover.convert.number_bytes import varints
from drover.local.state import (
    ClusterError,
    ClusterState,
    ProcessState,
    check_trusted,
    read_state,
    write_state,
)
from drover.policy.egress import AllowedHosts
from drover.python_process import python_command, python_environment
from drover.record.errors import RowsError
from drover.security import tokens
from drover.security.tokens import (
    KeysUnavailableError,
    TokenRejectedError,
    TokenRules,
    TokenVerifier,
    key_source,
)
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.other_user import OTHER_ID
from tests.support.waiting import wait_until
from tests.support.web_tokens import KEY, jwks
from tests.support.web_tokens import signed as token

pytestmark = [pytest.mark.faults("security"), pytest.mark.timeout(600)]

PLAIN = HttpSettings(AllowedHosts(), backoff_ms=0)
SECRETS = ("x-api-key", "authorization", "cookie")
LOGINS = (
    replace(PLAIN, headers=(("X-Api-Key", "canary"), ("Cookie", "canary"))),
    replace(PLAIN, authorization=OWN_HEADER, header="canary"),
    replace(PLAIN, authorization=BASIC, user="u", password="canary"),
)


def secrets_in(requests: list[Request]) -> list[str]:
    return [each for request in requests for each in SECRETS if each in request.headers]


@contextmanager
def client_of(settings: HttpSettings, home: str) -> Iterator[HttpClient]:
    client = HttpClient(settings, home)
    try:
        yield client
    finally:
        client.close()


# M2: headers of a request on their way through redirects


@pytest.mark.parametrize("settings", LOGINS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("form", ["{0}/x", "//127.0.0.1:{1}/x", "http://localhost:{1}/x"])
def test_no_login_follows_a_redirect_to_another_origin(
    settings: HttpSettings, status: int, form: str
) -> None:
    with running_api(lambda _: Reply(b"there")) as other:
        target = form.format(other.url, other.url.rpartition(":")[2])

        def answer(request: Request) -> Reply:
            path = {"/a": "/b"}.get(request.path, target)
            return Reply(status=status, headers={"location": path})

        with running_api(answer) as api, client_of(settings, api.url) as client:
            assert client.send("GET", f"{api.url}/a").body == b"there"
            assert len(secrets_in(api.requests)) >= 2
        assert len(other.requests) == 1
        assert secrets_in(other.requests) == []


def test_a_login_returns_to_its_origin_only() -> None:
    ends = Reply(b"end")
    with running_api(lambda _: Reply(status=302, headers={"location": f"{api.url}/end"})) as other:

        def answer(request: Request) -> Reply:
            if request.path == "/end":
                return ends
            return Reply(status=302, headers={"location": f"{other.url}/x"})

        with running_api(answer) as api, client_of(LOGINS[0], api.url) as client:
            assert client.send("GET", f"{api.url}/a").body == b"end"
        assert secrets_in(other.requests) == []


def test_a_token_server_gets_no_headers_of_the_api_and_cannot_send_its_login_on() -> None:
    with running_api(lambda _: Reply({"access_token": "t"})) as other:
        moved = Reply(status=307, headers={"location": f"{other.url}/token"})
        with running_api(lambda _: moved) as login, running_api(lambda _: Reply(b"ok")) as api:
            settings = replace(
                LOGINS[0],
                authorization=OAUTH2,
                token_url=f"{login.url}/token",
                client_id="id",
                client_secret="canary",
            )
            with client_of(settings, api.url) as client, pytest.raises(HttpError):
                client.send("GET", f"{api.url}/a")
            assert [each for each in secrets_in(login.requests) if each != "authorization"] == []
        assert other.requests == []


ICEBERG = {
    "name": "a",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "app.orders",
    "iceberg.catalog.type": "rest",
}


def faults_of_catalogue(url: str, **more: str) -> str:
    values = validate_config(IcebergSink, {**ICEBERG, "iceberg.catalog.uri": url, **more})
    return "\n".join(text for each in values for text in each.errors)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_headers_of_a_catalogue_follow_no_redirect_to_another_host(status: int) -> None:
    with running_api(lambda _: Reply({"defaults": {}, "overrides": {}})) as other:
        target = f"http://localhost:{other.url.rpartition(':')[2]}"

        def answer(request: Request) -> Reply:
            return Reply(status=status, headers={"location": f"{target}{request.path}"})

        with running_api(answer) as api:
            told = faults_of_catalogue(api.url, **{"iceberg.catalog.header.X-Api-Key": "canary"})
        assert other.requests == []
    assert "redirects to another host" in told
    assert "name the final address" in told


# M3: compressed responses


def bombs() -> dict[str, tuple[str, bytes]]:
    """Bodies of at most two megabytes that unpack to 256 MiB, and their
    encodings.
    """
    size = 256 * 1024 * 1024
    packed = gzip.compress(bytes(size), 1)
    raw = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    found = {
        "one": ("gzip", packed),
        "members": ("x-gzip", gzip.compress(bytes(size // 64), 1) * 64),
        "case": (" GZip ", packed),
        "deflate": ("deflate", zlib.compress(bytes(size), 1)),
        "raw deflate": ("deflate", raw.compress(bytes(size)) + raw.flush()),
        "twice": ("gzip, gzip", gzip.compress(packed)),
    }
    zstd = pa.Codec("zstd").compress(bytes(size), asbytes=True)
    brotli = pa.Codec("brotli", compression_level=1).compress(bytes(size), asbytes=True)
    return {**found, "zstd": ("zstd", zstd), "brotli": ("br", brotli)}


@pytest.fixture(scope="module")
def packed() -> dict[str, tuple[str, bytes]]:
    return bombs()


KINDS = ["one", "members", "case", "deflate", "raw deflate", "twice", "zstd", "brotli"]
PEAK_MAX_BYTES = 200 * 1024 * 1024


def peak_bytes_of(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_no_encoding_of_an_apis_response_exceeds_the_limit(
    packed: dict[str, tuple[str, bytes]], kind: str
) -> None:
    encoding, body = packed[kind]

    def call() -> None:
        with client_of(PLAIN, api.url) as client, pytest.raises(HttpError):
            client.send("GET", api.url, max_bytes=16 * 1024 * 1024)

    with running_api(lambda _: Reply(body, headers={"content-encoding": encoding})) as api:
        assert peak_bytes_of(call) < PEAK_MAX_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_no_encoding_of_a_catalogues_response_exceeds_the_limit(
    packed: dict[str, tuple[str, bytes]], kind: str
) -> None:
    encoding, body = packed[kind]
    told: list[str] = []
    with running_api(lambda _: Reply(body, headers={"content-encoding": encoding})) as api:
        peak = peak_bytes_of(lambda: told.append(faults_of_catalogue(api.url)))
    assert "cannot be used" in told[0]
    assert peak < PEAK_MAX_BYTES


# M9: state files of other users


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A directory of this user with a cluster's state."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files to another user")
    directory = tmp_path / "up"
    directory.mkdir(mode=0o700)
    process = psutil.Process()
    state = {"worker-1": ProcessState(process.pid, "127.0.0.1:1", "a.log")}
    write_state(directory, ClusterState(process.pid, process.create_time(), state))
    assert read_state(directory) is not None
    return directory


def link_to_foreign_directory(own: Path) -> Path:
    os.chown(own, OTHER_ID, OTHER_ID)
    link = own.parent / "link"
    link.symlink_to(own)
    return link


def link_to_foreign_file(own: Path) -> Path:
    foreign = own.parent / "foreign.json"
    (own / "cluster.json").rename(foreign)
    os.chown(foreign, OTHER_ID, OTHER_ID)
    (own / "cluster.json").symlink_to(foreign)
    return own


def hard_link_to_foreign_file(own: Path) -> Path:
    os.chown(own / "cluster.json", OTHER_ID, OTHER_ID)
    (own / "cluster.json").rename(own / "x")
    (own / "cluster.json").hardlink_to(own / "x")
    return own


def file_that_others_write(own: Path) -> Path:
    (own / "cluster.json").chmod(0o666)
    return own


def directory_that_a_group_writes(own: Path) -> Path:
    own.chmod(0o770)
    return own


def sticky_directory(own: Path) -> Path:
    own.chmod(0o1777)
    return own


@pytest.mark.parametrize(
    "planted",
    [
        link_to_foreign_directory,
        link_to_foreign_file,
        hard_link_to_foreign_file,
        file_that_others_write,
        directory_that_a_group_writes,
        sticky_directory,
    ],
)
def test_a_state_that_another_user_could_write_is_not_trusted(
    own: Path, planted: Callable[[Path], Path]
) -> None:
    directory = planted(own)
    for use in (check_trusted, read_state):
        with pytest.raises(ClusterError, match=r"trust|belongs to") as caught:
            use(directory)
        assert "choose another --dir or --address" in str(caught.value)


# M10: modules in the working directory


@pytest.mark.parametrize(
    "name",
    [
        "structlog.py",
        "grpc/__init__.py",
        "sitecustomize.py",
        "usercustomize.py",
        "json.py",
        "drover/__init__.py",
        "drover_worker/__init__.py",
        "google/protobuf/__init__.py",
    ],
)
def test_no_module_of_the_working_directory_is_imported(tmp_path: Path, name: str) -> None:
    folder, mark = tmp_path / "shared", tmp_path / "imported"
    module = folder / name
    module.parent.mkdir(parents=True)
    module.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    given = f":{os.environ.get('PYTHONPATH', '')}::/nowhere:"
    environment = python_environment({**os.environ, "PYTHONPATH": given})
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import structlog'])"
    for command in (
        python_command("drover_worker.engine.process", "nowhere"),
        python_command("drover.cli.main", "--version"),
        [sys.executable, "-c", program],
    ):
        subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False, timeout=120
        )
        assert not mark.exists(), command


# M11, L5: keys of a token's issuer

RULES = TokenRules(audience="drover", issuer="https://id.example.com")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches keys for each unknown key, with a short time limit."""
    monkeypatch.setattr(tokens, "KEYS_MIN_AGE_S", 0.0)
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 2.0)


BAD_KEYS: dict[str, Callable[[Api], Reply]] = {
    "an endless redirect": lambda api: Reply(status=302, headers={"location": f"{api.url}/x"}),
    "a redirect to http": lambda _: Reply(status=302, headers={"location": "http://127.0.0.1:1/"}),
    "a redirect to a file": lambda _: Reply(status=302, headers={"location": "file:///etc/passwd"}),
    "a redirect to data": lambda _: Reply(status=302, headers={"location": "data:,{}"}),
    "a redirect to ftp": lambda _: Reply(status=307, headers={"location": "ftp://127.0.0.1/k"}),
    "a redirect without a scheme": lambda _: Reply(status=302, headers={"location": "//[::1]:1/"}),
    "too many keys": lambda _: Reply(b" " * (tokens.KEYS_MAX_BYTES + 1)),
    "compressed keys": lambda _: Reply(
        gzip.compress(bytes(10_000_000)), headers={"content-encoding": "gzip"}
    ),
    "nested keys": lambda _: Reply(b"[" * 100_000),
    "no keys": lambda _: Reply({"keys": []}),
    "a disconnect": lambda _: Reply(status=0),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", BAD_KEYS)
async def test_bad_keys_of_an_issuer_leave_the_known_ones(kind: str) -> None:
    with running_api(lambda _: Reply(jwks(one=KEY).encode())) as api:
        verifier = TokenVerifier(key_source(f"{api.url}/jwks"), RULES)
        await verifier.user(token())
        api.answer = lambda _: BAD_KEYS[kind](api)
        for _ in range(3):
            with pytest.raises((TokenRejectedError, KeysUnavailableError)):
                await verifier.user(token(KEY, "two"))
            assert (await verifier.user(token())).subject == "ann"
        assert {each.path for each in api.requests} <= {"/jwks", "/x"}


@pytest.mark.usefixtures("impatient")
async def test_unknown_keys_of_many_callers_delay_no_known_one() -> None:
    with running_api(lambda _: Reply(jwks(one=KEY).encode())) as api:
        verifier = TokenVerifier(key_source(f"{api.url}/jwks"), RULES)
        await verifier.user(token())
        unknown = [asyncio.ensure_future(verifier.user(token(KEY, f"key {n}"))) for n in range(500)]
        for _ in range(20):
            assert (await verifier.user(token())).subject == "ann"
        found = await asyncio.gather(*unknown, return_exceptions=True)
        assert {type(each) for each in found} <= {TokenRejectedError, KeysUnavailableError}
        wait_until(lambda: len(api.requests) < 500)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "name", ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"]
)
async def test_keys_come_through_no_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        running_api(lambda _: Reply(jwks(one=KEY).encode())) as api,
        running_api(lambda _: Reply(jwks(two=KEY).encode())) as proxy,
    ):
        monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        verifier = TokenVerifier(key_source(f"{api.url}/jwks"), RULES)
        assert (await verifier.user(token())).subject == "ann"
        assert proxy.proxied_to(api) == []


# M12: records whose bytes name more items than they have

HEAD = b"\0\0\0\0\1"
EMPTY: Any = {"type": "record", "name": "Empty", "fields": []}
ITEMS: dict[str, Any] = {
    "empty records": {"type": "array", "items": EMPTY},
    "a map of empty records": {"type": "map", "values": EMPTY},
    "lists of empty records": {"type": "array", "items": {"type": "array", "items": EMPTY}},
    "fixed of no bytes": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
    "numbers": {"type": "array", "items": "int"},
    "texts": {"type": "array", "items": "string"},
}
COUNTS = (2**20, 2**31, 2**62, -(2**31), -(2**62))


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("end", [b"\0", b"", bytes(20)], ids=["zero", "nothing", "zeros"])
def test_more_items_than_bytes_are_an_error_of_their_record(
    kind: str, count: int, end: bytes
) -> None:
    numbers = [count] if count > 0 else [count, 0]  # with the block's size
    block = b"".join(varints(np.array(numbers, np.int64)).to_pylist())
    values = pa.array([HEAD + b"\0", HEAD + block + end], pa.binary())
    schema = parse_avro(fastavro.schema.to_parsing_canonical_form(ITEMS[kind]))
    columns = connect_schema(schema, sum_types=False)
    found: list[RowsError] = []

    def call() -> None:
        with pytest.raises(RowsError) as caught:
            decode_records(values, schema, columns, skipped_bytes=len(HEAD))
        found.append(caught.value)

    assert peak_bytes_of(call) < PEAK_MAX_BYTES
    assert list(found[0].rows) == [1]
