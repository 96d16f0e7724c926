"""Reading a Kafka Connect cluster, also a hostile one."""

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from drover.migrate.http_get import Getter, RequestError
from drover.migrate.read import OldCluster, ReadError, ReadLimits, read_cluster
from drover.policy.egress import AllowedHosts
from tests.support.http_api import Reply
from tests.support.kafka_connect_api import FILE_SOURCE, ScriptedConnect, scripted_connect

Read = Callable[..., OldCluster]


def test_all_that_the_api_shows_is_read(script: ScriptedConnect, read: Read) -> None:
    script.add(
        "orders",
        {"connector.class": FILE_SOURCE, "file": "/in.txt", "topic": "lines"},
        task_traces=("", "java.lang.RuntimeException: disk full\n\tat Task.poll(Task.java:7)"),
        offsets=[{"partition": {"filename": "/in.txt"}, "offset": {"position": 7}}],
        topics=("lines",),
    )
    script.settings[FILE_SOURCE] = [
        {"name": "file", "type": "STRING"},
        {"name": "key", "type": "PASSWORD"},
    ]
    found = read()
    (orders,) = found.connectors
    assert (found.version, found.kafka_cluster_id, found.unknown) == ("4.4.0", "k1", ())
    assert (orders.kind, orders.state, orders.task_count) == ("source", "RUNNING", 2)
    assert [each.state for each in orders.tasks] == ["RUNNING", "FAILED"]
    assert orders.tasks[1].cause == "java.lang.RuntimeException: disk full"
    assert orders.offsets == (({"filename": "/in.txt"}, {"position": 7}),)
    assert orders.topics == ("lines",)
    assert found.secret_settings == {FILE_SOURCE: frozenset({"key"})}


@pytest.mark.parametrize("name", ["a/b", "a b", "a%2Fb", "..", "日本", "a?x=1#y", "<img src=x>"])
def test_a_connector_with_any_name_is_read(name: str, script: ScriptedConnect, read: Read) -> None:
    script.add(name, {"connector.class": FILE_SOURCE}, topics=("t",))
    (found,) = read().connectors
    assert (found.name, found.topics) == (name, ("t",))


def test_300_connectors_are_read(script: ScriptedConnect, read: Read) -> None:
    for at in range(300):
        script.add(f"c{at:03}", {"connector.class": FILE_SOURCE}, topics=("t",))
    found = read()
    assert [each.name for each in found.connectors] == [f"c{at:03}" for at in range(300)]
    assert all(each.topics == ("t",) for each in found.connectors)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_request_is_repeated_during_a_rebalance(
    status: int, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    busy = Reply({"error_code": status, "message": "rebalancing"}, status)
    script.replies["/connectors"] = [busy, Reply({"a": script.connectors["a"]})]
    script.replies["/connectors/a/offsets"] = [busy, busy, Reply({"offsets": []})]
    found = read()
    assert [each.name for each in found.connectors] == ["a"]
    assert found.connectors[0].offsets == ()


def test_an_endless_rebalance_ends_with_the_status(script: ScriptedConnect, read: Read) -> None:
    script.replies["/connectors"] = [Reply({"message": "secret-of-the-server"}, 409)]
    with pytest.raises(ReadError, match=r"GET http://.*/connectors returned 409") as caught:
        read()
    assert "secret-of-the-server" not in str(caught.value)


def test_a_part_that_cannot_be_read_is_listed(script: ScriptedConnect, read: Read) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    script.replies["/connectors/a/offsets"] = [Reply({}, 404)]  # before Kafka Connect 3.5
    script.replies["/connectors/a/topics"] = [Reply({}, 403)]
    script.replies["/connector-plugins"] = [Reply({}, 500)]
    found = read()
    assert (found.connectors[0].offsets, found.connectors[0].topics, found.plugins) == (None,) * 3
    assert len(found.unknown) == 3
    assert "credentials" in " ".join(found.unknown)


@pytest.mark.parametrize("status", [401, 403, 409, 500])
def test_some_connectors_that_cannot_be_read_hide_no_others(
    status: int, script: ScriptedConnect, read: Read
) -> None:
    for name in ("a", "b", "c"):
        script.add(name, {"connector.class": FILE_SOURCE}, topics=("t",))
        script.replies[f"/connectors/{name}"] = [Reply(script.connectors[name]["info"])]
    # as from Kafka Connect with one connector that it cannot show
    script.replies["/connectors"] = [*[Reply({}, 500)] * 3, Reply(["a", "b", "c"])]
    script.replies["/connectors/b"] = [Reply({"message": "secret-of-the-server"}, status)]
    script.replies["/connectors/c/status"] = [Reply({}, status)]
    found = read()
    assert [(each.name, each.state) for each in found.connectors] == [
        ("a", "RUNNING"),
        ("c", "unknown"),
    ]
    assert found.unread == ("b",)
    assert f"/connectors/b returned {status}" in " ".join(found.unknown)
    assert "secret-of-the-server" not in " ".join(found.unknown)


@pytest.mark.parametrize("name", ["b", "a/b", "b\x1b[31m"])
def test_a_connector_that_is_deleted_meanwhile_is_left_out(
    name: str, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    script.add(name, {"connector.class": FILE_SOURCE})
    listed = Reply({each: script.connectors[each] for each in ("a", name)})
    script.replies["/connectors"] = [listed, Reply(["a"])]
    del script.connectors[name]
    found = read()
    assert ([each.name for each in found.connectors], found.unread) == (["a"], ())
    assert f"connector {name!r} was deleted in Kafka Connect while it was read" in found.unknown


def test_a_connector_whose_path_is_not_found_is_kept_if_it_still_exists(
    script: ScriptedConnect, read: Read
) -> None:
    script.add("a/b", {"connector.class": FILE_SOURCE})
    listed = Reply({"a/b": script.connectors["a/b"]})
    script.replies["/connectors"] = [listed, Reply(["a/b"])]
    # a proxy that takes the encoded slash for a separator
    for part in ("tasks", "topics", "offsets"):
        script.replies[f"/connectors/a%2Fb/{part}"] = [Reply({}, 404)]
    assert [each.name for each in read().connectors] == ["a/b"]


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_server_without_the_root_is_read(
    status: int, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    script.replies["/"] = [Reply({}, status)]
    found = read()
    assert ([each.name for each in found.connectors], found.version) == (["a"], "")
    (unknown,) = found.unknown
    assert f"returned {status}" in unknown


def test_a_version_without_expand_is_read(script: ScriptedConnect, read: Read) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    script.replies["/connectors"] = [Reply(["a", "gone"])]
    script.replies["/connectors/a"] = [Reply(script.connectors["a"]["info"])]
    found = read()
    assert [(each.name, each.state) for each in found.connectors] == [("a", "RUNNING")]
    assert "GET http" in found.unknown[0]
    assert "/connectors/gone returned 404" in found.unknown[0]


def test_wrong_credentials_are_named(script: ScriptedConnect, read: Read) -> None:
    script.replies["/"] = [Reply({}, 401)]
    with pytest.raises(ReadError, match=r"401.*--password-file"):
        read(headers={"authorization": "Basic eDp5"})


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/iam",
        "http://user:pa55@127.0.0.1:1/x?token=1",
        "//169.254.169.254/",
        "file:///etc/passwd",
        "/elsewhere",
        "http://[",
        "http://127.0.0.1:22/",
        "http://localhost:9200/_cat",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "http://a\x1b[31m.example/",
        "",
    ],
)
def test_a_redirect_is_not_followed(target: str, script: ScriptedConnect, read: Read) -> None:
    script.replies["/"] = [Reply(b"", 302, {"location": target})]
    with pytest.raises(ReadError, match="redirected") as caught:
        read()
    assert "pa55" not in str(caught.value)
    assert "token=1" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("status", [301, 303, 307, 308])
def test_no_request_is_sent_to_the_target_of_a_redirect(
    status: int, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    with scripted_connect(ScriptedConnect()) as other:
        moved = Reply({}, status, {"location": f"{other.url}/connectors/a/offsets"})
        script.replies["/connectors/a/offsets"] = [moved]
        found = read(headers={"authorization": "Basic eDp5"})
        assert other.requests == []
    assert found.connectors[0].offsets is None
    (unknown,) = found.unknown
    assert "which is not followed" in unknown


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254", "http://[::ffff:169.254.169.254]:80", "http://0xA9FEA9FE:8083"],
)
def test_a_metadata_address_is_not_called(url: str) -> None:
    getter = Getter(url, {}, allowed=AllowedHosts(), request_s=5, max_bytes=1000)
    with pytest.raises(RequestError, match="must not call"):
        getter.get("/")


def test_the_allowed_hosts_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "connect.example")
    getter = Getter("http://127.0.0.1:9", {}, request_s=5, max_bytes=1000)
    with pytest.raises(RequestError, match="DROVER_ALLOWED_HOSTS"):
        getter.get("/")


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a:1", "http://", "a:8083", "http://u:p4ss@a:8083", "http://a:99999"),
        *("http://a?x=1", "http://a#x", ""),
    ],
)
def test_a_wrong_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="must be a URL") as caught:
        Getter(url, {}, request_s=1, max_bytes=1)
    assert "p4ss" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Sign in</body></html>",
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"version": 1}',
        b"[]",
        b"null",
        b'{"version": "\\ud800"}',
        b"1" * 10_000,
        b'{"version":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"version": "4.4.0"} {"version": "4.4.0"}',
        b'{"version": "4.4.0"',
        b"NaN",
    ],
)
def test_a_server_that_is_no_kafka_connect_is_named(
    body: bytes, script: ScriptedConnect, read: Read
) -> None:
    script.replies["/"] = [Reply(body, headers={"content-type": "text/html"})]
    with pytest.raises(ReadError, match=r"GET / (returned no JSON|did not return)") as caught:
        read()
    assert "Sign in" not in str(caught.value)


def _changed(script: ScriptedConnect, path: str, value: object) -> Reply:
    document: Any = json.loads(json.dumps({"a": script.connectors["a"]}))
    at = document
    *parents, last = path.split(".")
    for each in parents:
        at = at[each]
    at[last] = value
    return Reply(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", "text"),
        ("a", None),
        ("a.info", []),
        ("a.info.config", [["x", "y"]]),
        ("a.info.config.file", 7),
        ("a.info.config.file", {"x": 1}),
        ("a.info.config.file", True),
        ("a.status", "RUNNING"),
        ("a.status.connector", None),
        ("a.status.connector.state", 5),
        ("a.status.tasks", {"id": 0}),
        ("a.status.tasks", [None]),
        ("a.status.tasks", [{"id": "0", "state": "RUNNING"}]),
        ("a.status.tasks", [{"id": True, "state": "RUNNING"}]),
    ],
)
def test_a_response_with_other_types_is_an_error(
    path: str, value: object, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE, "file": "/in"})
    script.replies["/connectors"] = [_changed(script, path, value)]
    with pytest.raises(ReadError, match="did not return what Kafka Connect returns: expected"):
        read()


def test_odd_values_that_do_no_harm_are_accepted(script: ScriptedConnect, read: Read) -> None:
    script.add("a", {"connector.class": FILE_SOURCE, "file": None}, state="RUNNING")
    changed = _changed(script, "a.info.type", 3)
    changed.body["a"]["status"]["connector"]["state"] = "<script>"
    changed.body["a"]["status"]["connector"]["trace"] = 5
    changed.body["b"] = {"info": changed.body["a"]["info"], "status": None}
    script.replies["/connectors"] = [changed]
    found = {each.name: each for each in read().connectors}
    assert "file" not in found["a"].config
    assert (found["a"].kind, found["a"].state, found["a"].cause) == ("unknown", "unknown", "")
    assert found["b"].state == "unknown"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/connectors/a/offsets", {"offsets": [{"partition": "p", "offset": {}}]}),
        ("/connectors/a/offsets", {"offsets": [{"partition": {}, "offset": "o"}]}),
        ("/connectors/a/offsets", {"offsets": {"a": 1}}),
        ("/connectors/a/offsets", []),
        ("/connectors/a/topics", {"b": {"topics": []}}),
        ("/connectors/a/topics", {"a": {"topics": [1]}}),
        ("/connectors/a/tasks", {"a": 1}),
        ("/connector-plugins", {"a": 1}),
        ("/connector-plugins", [{"type": "source"}]),
        (f"/connector-plugins/{FILE_SOURCE}/config", [{"type": "PASSWORD"}]),
    ],
)
def test_a_part_with_other_types_is_listed(
    path: str, body: object, script: ScriptedConnect, read: Read
) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    script.replies[path] = [Reply(body)]
    (unknown,) = read().unknown
    assert "did not return what Kafka Connect returns" in unknown


def test_responses_together_are_limited(script: ScriptedConnect, read: Read) -> None:
    script.replies["/connectors"] = [Reply(b" " * (2 * 1024 * 1024))]
    with pytest.raises(ReadError, match="more than 1048576 bytes in all"):
        read()


def test_many_responses_together_are_limited(script: ScriptedConnect, read: Read) -> None:
    for at in range(20):
        script.add(f"c{at}", {"connector.class": FILE_SOURCE}, topics=("t" * 100_000,))
    found = read()
    assert any("bytes in all" in each for each in found.unknown)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "deflate", "gzip, gzip", "x"])
def test_a_compressed_response_is_refused(
    encoding: str, script: ScriptedConnect, read: Read
) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    script.replies["/"] = [Reply(bomb, headers={"content-encoding": encoding})]
    with pytest.raises(ReadError, match="compressed"):
        read()


def test_a_compressed_body_that_is_not_declared_is_no_json(
    script: ScriptedConnect, read: Read
) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    script.replies["/connectors"] = [Reply(bomb, headers={"content-type": "application/json"})]
    with pytest.raises(ReadError, match=rf"returned no JSON: 200 \(application/json, {len(bomb)}"):
        read()


@contextmanager
def _raw_server(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server whose ``answer`` ends once the event is set; its URL."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        answer(connection, ended)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _drips_its_body(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while not ended.wait(0.01):
        connection.sendall(b" ")


def _drips_its_head(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
    while not ended.wait(0.01):
        connection.sendall(b"y")


def _drips_chunks(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not ended.wait(0.01):
        connection.sendall(b"1\r\n \r\n")


def _continues(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    while not ended.wait(0.01):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def _is_silent(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    ended.wait()


@pytest.mark.parametrize(
    "answer", [_drips_its_body, _drips_its_head, _drips_chunks, _continues, _is_silent]
)
def test_a_slow_server_is_left(answer: Callable[[socket.socket, threading.Event], None]) -> None:
    with _raw_server(answer) as url:
        getter = Getter(url, {}, request_s=0.3, max_bytes=1_000_000)
        with pytest.raises(ReadError, match=r"no complete response within 0\.3 s"):
            read_cluster(getter, url, ReadLimits(request_s=0.3))


def test_a_silent_tls_server_is_left() -> None:
    with _raw_server(_is_silent) as url:
        getter = Getter(url.replace("http", "https"), {}, request_s=0.3, max_bytes=1_000)
        with pytest.raises(RequestError, match=r"no complete response within 0\.3 s"):
            getter.get("/")


def _many_headers(connection: socket.socket, ended: threading.Event) -> None:
    del ended
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 50_000 + b"\r\n{}")


def _cut_off(connection: socket.socket, ended: threading.Event) -> None:
    del ended
    connection.recv(65_536)
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"version"')


def _no_http(connection: socket.socket, ended: threading.Event) -> None:
    del ended
    connection.recv(65_536)
    connection.sendall(b"SSH-2.0-OpenSSH_9.0\r\n")


def _negative_length(connection: socket.socket, ended: threading.Event) -> None:
    del ended
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n")


def _endless_chunks(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not ended.is_set():
        connection.sendall(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")


def _endless_body(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not ended.is_set():
        connection.sendall(b"[" * 0x10000)


def _endless_chunk_size(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not ended.is_set():
        connection.sendall(b"1" * 0x10000)


def _endless_trailers(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
    while not ended.is_set():
        connection.sendall(b"a: b\r\n" * 1000)


def _endless_status_line(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(65_536)
    while not ended.is_set():
        connection.sendall(b"H" * 0x10000)


@pytest.mark.parametrize(
    "answer",
    [
        *(_endless_chunks, _endless_body, _endless_chunk_size, _endless_trailers),
        _endless_status_line,
    ],
)
def test_an_endless_response_ends(
    answer: Callable[[socket.socket, threading.Event], None],
) -> None:
    with _raw_server(answer) as url:
        getter = Getter(url, {}, request_s=1, max_bytes=1_000_000)
        # a fast machine reads the maximum before the time is over
        with pytest.raises(RequestError, match=r"GET http|more than 1000000 bytes"):
            getter.get("/")


@pytest.mark.parametrize("answer", [_many_headers, _cut_off, _no_http, _negative_length])
def test_a_broken_response_is_an_error(
    answer: Callable[[socket.socket, threading.Event], None],
) -> None:
    with _raw_server(answer) as url:
        getter = Getter(url, {}, request_s=5, max_bytes=1_000_000)
        with pytest.raises(RequestError, match="GET http") as caught:
            getter.get("/")
    assert "OpenSSH" not in str(caught.value)


def test_reading_ends_at_its_time_limit(script: ScriptedConnect) -> None:
    script.add("a", {"connector.class": FILE_SOURCE})
    times = iter([0.0, *[1.0] * 2, *[1_000.0] * 50])

    class Scripted(Getter):
        def __init__(self) -> None:
            pass

        def get(self, path: str) -> Any:
            bodies = {"/": {"version": "4"}, "/connectors": {"a": script.connectors["a"]}}
            body = json.dumps(bodies[path.partition("?")[0]]).encode()
            return type("R", (), {"body": body, "media_type": ""})

    found = read_cluster(Scripted(), "http://a", ReadLimits(), now_s=lambda: next(times))
    assert found.connectors[0].topics is None
    assert all("not read within 300 s" in each for each in found.unknown)


def test_the_client_has_the_limits_of_heads_that_the_standard_library_documents() -> None:
    assert http.client._MAXHEADERS == 100  # type: ignore[attr-defined]
    assert http.client._MAXLINE == 65536  # type: ignore[attr-defined]
