"""Requests to a real HTTP server: authentication, retries, rejections."""

import gzip
import re
import socket
import threading
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import RetriableError, TopicPartition
from drover.connector.settings import parse_config, validate_config
from drover.connectors.http.client import HttpClient, HttpError, PassingHttpError, RefusedError
from drover.connectors.http.settings import BASIC, OAUTH2, OWN_HEADER, HttpSettings
from drover.connectors.http.sink import DELETE, FAIL, HttpSink, HttpWriter, RequestLayout
from drover.connectors.http.source import HttpSource
from drover.policy.egress import AllowedHosts
from tests.support.error_texts import logged
from tests.support.http_api import Api, Reply, Request, running_api
from tests.support.lake_records import records

PLAIN = HttpSettings(AllowedHosts(), backoff_ms=0)


def send(api: Api, settings: HttpSettings = PLAIN, path: str = "/a", **more: Any) -> bytes:
    client = HttpClient(settings, api.url)
    try:
        return client.send("GET", f"{api.url}{path}", **more).body
    finally:
        client.close()


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        (replace(PLAIN, authorization=OWN_HEADER, header="Token abc"), "Token abc"),
        (replace(PLAIN, authorization=BASIC, user="u", password="pä"), "Basic dTpww6Q="),
    ],
)
def test_requests_are_logged_in(settings: HttpSettings, header: str) -> None:
    with running_api(lambda _: Reply(b"ok")) as api:
        assert send(api, settings) == b"ok"
    assert api.requests[0].headers["authorization"] == header
    assert "abc" not in repr(settings)
    assert "pä" not in repr(settings)


@pytest.mark.parametrize("in_body", [False, True])
def test_tokens_are_asked_for_once_and_again_when_they_are_refused(in_body: bool) -> None:
    tokens = iter(["first", "second"])

    def answer(request: Request) -> Reply:
        if request.path == "/token":
            return Reply({"access_token": next(tokens), "expires_in": 3600})
        good = request.headers.get("authorization") == "Bearer second"
        return Reply(b"ok", 200 if good or len(api.requests) < 4 else 401)

    with running_api(answer) as api:
        settings = replace(
            PLAIN,
            authorization=OAUTH2,
            token_url=f"{api.url}/token",
            client_id="id",
            client_secret="hidden",
            scope="read",
            client_in_body=in_body,
        )
        client = HttpClient(settings, api.url)
        for _ in range(3):
            assert client.send("GET", f"{api.url}/a").body == b"ok"
        client.close()
    asked = [each for each in api.requests if each.path == "/token"]
    assert len(asked) == 2
    assert b"grant_type=client_credentials" in asked[0].body
    assert (b"client_secret=hidden" in asked[0].body) is in_body


def test_a_token_that_is_not_given_is_told() -> None:
    with running_api(lambda _: Reply({"error": "no"}, 400)) as api:
        settings = replace(
            PLAIN,
            authorization=OAUTH2,
            token_url=f"{api.url}/token",
            client_id="id",
            client_secret="hidden",
        )
        with pytest.raises(HttpError, match=r"check oauth2\.client\.id") as caught:
            send(api, settings)
    assert "hidden" not in str(caught.value)


def test_redirects_are_followed_to_allowed_hosts_without_credentials() -> None:
    settings = replace(PLAIN, authorization=OWN_HEADER, header="secret")
    with running_api(lambda _: Reply(b"there")) as other:

        def answer(request: Request) -> Reply:
            target = {"/a": "/b", "/b": f"{other.url}/c", "/bad": "http://169.254.169.254/x"}
            return Reply(status=302, headers={"location": target.get(request.path, "/loop")})

        with running_api(answer) as api:
            assert send(api, settings) == b"there"
            assert [each.headers.get("authorization") for each in api.requests] == ["secret"] * 2
            assert "authorization" not in other.requests[0].headers
            with pytest.raises(HttpError, match="must not call"):
                send(api, settings, "/bad")
            with pytest.raises(HttpError, match="more than 5 times"):
                send(api, settings, "/loop")


def test_a_host_that_is_not_allowed_is_not_called() -> None:
    with running_api(lambda _: Reply()) as api:
        only = replace(PLAIN, allowed=AllowedHosts(("api.example.com",)))
        with pytest.raises(HttpError, match="is not a host that connectors may call"):
            send(api, only)
    assert not api.requests


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (Reply(b"busy", 503, {"retry-after": "7"}), PassingHttpError, r"answers 503 \(.*4 bytes"),
        (Reply(b"", 429), PassingHttpError, "answers 429"),
        (Reply(status=0), PassingHttpError, "disconnected"),
        (Reply(b"wrong field", 422), RefusedError, r"answers 422 \(.*11 bytes"),
        (Reply(b"", 401), RefusedError, "check http.authorization.type"),
        (Reply(b"x" * 2_000), HttpError, "exceeds 1000 bytes"),
        (Reply(b"CANARY", 200, {"content-encoding": "zstd"}), HttpError, "other than by gzip"),
        (Reply(b"CANARY", 200, {"content-encoding": "gzip"}), HttpError, "not compressed by gzip"),
        (Reply(b"", 301, {"location": "http://a:CANARY/"}), PassingHttpError, "speak HTTP"),
    ],
)
def test_failures_are_told(reply: Reply, kind: type[HttpError], told: str) -> None:
    with running_api(lambda _: reply) as api, pytest.raises(kind, match=told) as caught:
        send(api, path="/a?token=hidden", max_bytes=1_000)
    assert not re.search("hidden|busy|wrong field|CANARY", logged(caught.value))
    if "retry-after" in reply.headers:
        assert isinstance(caught.value, PassingHttpError)
        assert caught.value.wait_s == 7


def test_what_answers_without_http_is_not_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-CANARY\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        client = HttpClient(PLAIN, "http://127.0.0.1")
        with pytest.raises(PassingHttpError, match="does not speak HTTP") as caught:
            client.send("GET", f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert "CANARY" not in logged(caught.value)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_compressed_response_is_unpacked(parts: int) -> None:
    packed = gzip.compress(b"x" * 400) * parts
    headers = {"content-encoding": "gzip"}
    with running_api(lambda _: Reply(packed, headers=headers)) as api:
        assert send(api, max_bytes=1_000) == b"x" * 400 * parts
        assert api.requests[0].headers["accept-encoding"] == "gzip, identity"
    with (
        running_api(lambda _: Reply(packed[:-9], headers=headers)) as api,
        pytest.raises(PassingHttpError, match="is incomplete"),
    ):
        send(api)


def test_a_response_is_unpacked_only_up_to_its_limit() -> None:
    bomb = gzip.compress(bytes(256 * 1024 * 1024), 1)
    tracemalloc.start()
    try:
        with (
            running_api(lambda _: Reply(bomb, headers={"content-encoding": "gzip"})) as api,
            pytest.raises(HttpError, match="exceeds 1000000 bytes"),
        ):
            send(api, max_bytes=1_000_000)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 32 * 1024 * 1024


def test_the_configured_headers_go_to_the_first_origin_only() -> None:
    settings = replace(PLAIN, headers=(("x-api-key", "hidden"),))
    with running_api(lambda _: Reply(b"there")) as other:

        def answer(request: Request) -> Reply:
            target = {"/a": "/b", "/b": f"{other.url}/c"}
            return Reply(status=302, headers={"location": target[request.path]})

        with running_api(answer) as api:
            assert send(api, settings) == b"there"
            assert [each.headers.get("x-api-key") for each in api.requests] == ["hidden"] * 2
    assert "x-api-key" not in other.requests[0].headers


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply()) as proxy, running_api(lambda _: Reply(b"ok")) as api:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert send(api) == b"ok"
        assert len(api.requests) == 1
    assert not proxy.proxied_to(api)


def test_a_server_that_does_not_answer_is_told() -> None:
    gone = running_api(lambda _: Reply())
    with gone as api:
        pass
    with pytest.raises(PassingHttpError, match="GET http://127"):
        send(api)


def write(
    layout: RequestLayout,
    *batches: pa.RecordBatch,
    pauses: list[float] | None = None,
    output_ids: Mapping[TopicPartition, str] = MappingProxyType({}),
    **more: Any,
) -> list[dict[str, Any]]:
    waited: Callable[[float], None] = ([] if pauses is None else pauses).append
    writer = HttpWriter("sink", replace(PLAIN, **more), layout, waited, output_ids)
    rows = (row for batch in writer(batches) for row in batch.to_pylist())
    return [row for row in rows if row["reason"] is not None]


def layout(api: Api, path: str = "/in/${topic}", **more: Any) -> RequestLayout:
    return RequestLayout("POST", f"{api.url}{path}", "application/json", **more)


@pytest.mark.parametrize("status", [300, 302, 304, 307])
def test_a_redirection_that_leads_nowhere_is_no_delivery(status: int) -> None:
    with running_api(lambda _: Reply(status=status)) as api:
        with pytest.raises(HttpError, match=f"answers {status} without an address to follow"):
            write(layout(api), records([{"id": 1}]))
        with pytest.raises(HttpError, match="without an address to follow"):
            send(api)


def test_each_record_is_a_request_in_order() -> None:
    with running_api(lambda _: Reply()) as api:
        batch = records([{"id": 1, "x": "é"}, None, {"id": 2, "x": None}])
        assert write(layout(api), batch) == []
    assert [each.body.decode() for each in api.requests] == [
        '{"id":1,"x":"é"}',
        '{"id":2,"x":null}',
    ]
    assert {each.path for each in api.requests} == {"/in/orders"}
    assert api.requests[1].headers["idempotency-key"] == "sink/orders/0/2"
    assert api.requests[1].headers["content-type"] == "application/json"


def test_records_of_a_new_topic_of_the_same_name_have_other_keys() -> None:
    with running_api(lambda _: Reply()) as api:
        rows = records([{"id": 1}]), records([{"id": 2}], partition=1)
        assert write(layout(api), *rows, output_ids={TopicPartition("orders", 0): "0a1b2c3d"}) == []
    keys = [each.headers["idempotency-key"] for each in api.requests]
    assert keys == ["sink/orders/0#0a1b2c3d/0", "sink/orders/1/0"]


def test_several_records_go_together() -> None:
    with running_api(lambda _: Reply()) as api:
        rows = records([{"id": n} for n in range(5)])
        more = records([{"id": 9}], partition=1)
        together = layout(api, size=3, prefix="[", suffix="]", separator=",")
        assert write(together, rows, more) == []
    assert [each.body for each in api.requests] == [
        b'[{"id":0},{"id":1},{"id":2}]',
        b'[{"id":3},{"id":4}]',
        b'[{"id":9}]',
    ]
    assert api.requests[0].headers["idempotency-key"] == "sink/orders/0/0-2"


def test_refused_records_are_found_one_by_one() -> None:
    def answer(request: Request) -> Reply:
        bad = b'"id":3' in request.body
        return Reply(b"no three", 422 if bad else 200)

    with running_api(answer) as api:
        rows = records([{"id": n} for n in range(6)])
        (refused,) = write(layout(api, size=4), rows)
    assert (refused["topic"], refused["partition"], refused["offset"]) == ("orders", 0, 3)
    assert "answers 422" in refused["reason"]
    assert "no three" not in refused["reason"]
    taken = [each.body for each in api.requests if b'"id":3' not in each.body]
    assert b"".join(taken) == b'{"id":0}{"id":1}{"id":2}{"id":4}\n{"id":5}'


def test_requests_are_repeated_until_they_are_given_up() -> None:
    replies = [Reply(status=503, headers={"retry-after": "3"}), Reply(status=0), Reply()]
    pauses: list[float] = []
    with running_api(lambda _: replies[min(len(api.requests), 3) - 1]) as api:
        rows = records([{"id": 1}])
        assert write(layout(api), rows, pauses=pauses, backoff_ms=250) == []
        assert pauses == [3.0, 0.5]
        assert len({each.headers["idempotency-key"] for each in api.requests}) == 1
    with running_api(lambda _: Reply(status=500)) as api:
        with pytest.raises(RetriableError, match="answers 500"):
            write(layout(api), rows, max_retries=2)
        assert len(api.requests) == 3


def test_a_login_that_is_refused_is_no_fault_of_records() -> None:
    with running_api(lambda _: Reply(status=403)) as api, pytest.raises(RefusedError):
        write(layout(api), records([{"id": 1}]))


@pytest.mark.parametrize("key", [None, "", "..", b"\xff"])
def test_a_record_whose_key_makes_no_url_is_refused(key: Any) -> None:
    gone = pa.array([None, None], pa.struct([("id", pa.int64())]))
    keys = pa.array([key, "a" if key is None or isinstance(key, str) else b"a"]).to_pylist()
    with running_api(lambda _: Reply()) as api:
        (refused,) = write(layout(api, "/in/${key}", nulls=DELETE), records(gone, keys=keys))
    assert refused["offset"] == 0
    assert "has no key" in refused["reason"]
    assert [(each.method, each.path) for each in api.requests] == [("DELETE", "/in/a")]


def test_records_without_a_value() -> None:
    nothing = pa.array([None], pa.struct([("id", pa.int64())]))
    batch = records(nothing, keys=["a/b"])
    with running_api(lambda _: Reply()) as api:
        assert write(layout(api, "/in/${key}", nulls=DELETE), batch) == []
        (refused,) = write(layout(api, nulls=FAIL), batch)
    (request,) = api.requests
    assert (request.method, request.path) == ("DELETE", "/in/a%2Fb")
    assert "has no value" in refused["reason"]


def faults(kind: Any, url: str, **changed: str) -> dict[str, str]:
    topic = "topics" if kind is HttpSink else "topic"
    raw = {"name": "c", "connector.class": kind.__name__, topic: "t", "http.url": url, **changed}
    return {each.field: each.description for each in parse_config(kind, raw).violations}


def test_a_sinks_config_is_checked_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api(lambda _: Reply()) as api:
        assert faults(HttpSink, f"{api.url}/${{topic}}") == {}
        assert not api.requests
    assert "must be a URL" in faults(HttpSink, "ftp://x")["http.url"]
    assert "must not contain a password" in faults(HttpSink, "http://u:p@localhost/")["http.url"]
    assert "must not call" in faults(HttpSink, "http://169.254.169.254/")["http.url"]
    assert "in its host" in faults(HttpSink, "http://${topic}/")["http.url"]
    assert "cannot be resolved" in faults(HttpSink, "http://nothing.invalid/")["http.url"]
    oauth = faults(HttpSink, "http://localhost/", **{"http.authorization.type": "oauth2"})
    assert len(oauth) == 3
    deletes = {"behavior.on.null.values": "delete"}
    assert "needs ${key}" in faults(HttpSink, "http://localhost/", **deletes)[next(iter(deletes))]
    headers = {"http.headers.additional": "no colon"}
    assert faults(HttpSink, "http://localhost/", **headers).keys() == headers.keys()
    monkeypatch.setenv("DROVER_ALLOWED_HOSTS", "api.example.com")
    assert (
        "is not a host that connectors may call"
        in faults(HttpSink, "http://localhost/")["http.url"]
    )


def test_what_a_sink_cannot_check_is_a_skipped_check() -> None:
    with running_api(lambda _: Reply()) as api:
        raw = {"name": "s", "topics": "t", "connector.class": "HttpSink", "http.url": api.url}
        (skipped,) = [each for each in validate_config(HttpSink, raw) if each.skipped_checks]
    assert skipped.key.name == "http.url"
    assert "a request may change its data" in skipped.skipped_checks[0]


@pytest.mark.parametrize("kind", [HttpSink, HttpSource])
def test_a_token_server_that_rejects_the_client_is_predicted(kind: Any) -> None:
    login = {
        "http.authorization.type": "oauth2",
        "oauth2.client.id": "me",
        "oauth2.client.secret": "guessed",
    }
    with running_api(lambda _: Reply(b"", 401)) as api:
        login["oauth2.access.token.url"] = f"{api.url}/token"
        (fault,) = faults(kind, f"{api.url}/items", **login).values()
        assert [each.path for each in api.requests] == ["/token"]
    assert "no access token" in fault
    assert "guessed" not in fault


@pytest.mark.parametrize(
    ("items", "changed", "setting", "text"),
    [
        ([{"id": 1}, {"id": "x"}], {"schema": "id bigint"}, "schema", "1 of the 2 items"),
        ([{"id": 1}, 7], {}, "http.response.items", "is not a JSON object, but int"),
        ([{"id": 1}], {"key": "ident"}, "key", "names ident, which no item"),
        (
            [{"at": 1}, {"at": "x"}],
            {"incremental.parameter": "since", "incremental.pointer": "/at"},
            "incremental.pointer",
            "values of different types",
        ),
    ],
)
def test_items_that_the_run_rejects_are_predicted(
    items: list[Any], changed: dict[str, str], setting: str, text: str
) -> None:
    with running_api(lambda _: Reply(items)) as api:
        found = faults(HttpSource, api.url, **changed)
        assert text in found[setting]
        tolerant = faults(HttpSource, api.url, **{"errors.tolerance": "all", **changed})
    assert (setting in tolerant) is (setting in ("key", "incremental.pointer"))


def test_items_without_the_incremental_field_are_a_warning() -> None:
    incremental = {"incremental.parameter": "since", "incremental.pointer": "/at"}
    raw = {"name": "s", "topic": "t", "connector.class": "HttpSource", **incremental}
    with running_api(lambda _: Reply([{"id": 1}])) as api:
        raw["http.url"] = api.url
        found = {each.key.name: each for each in validate_config(HttpSource, raw)}
    assert "each pass reads all items" in found["incremental.pointer"].warnings[0]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_redirects_are_followed_in_the_check_as_in_the_run(method: str) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/old":
            return Reply(b"", 302, {"location": "/new"})
        return Reply([{"id": 1}])

    with running_api(answer) as api:
        found = faults(HttpSource, f"{api.url}/old", **{"http.request.method": method})
    if method == "GET":
        assert found == {}
    else:
        assert "is redirected with status 302" in found["http.url"]


def test_a_method_that_the_api_refuses_is_predicted() -> None:
    with running_api(lambda request: Reply([], 200 if request.method == "GET" else 405)) as api:
        found = faults(HttpSource, api.url, **{"http.request.method": "POST"})
    assert "answers 405" in found["http.url"]


def test_a_sources_config_is_tried_at_the_api() -> None:
    replies: dict[str, Reply] = {
        "/good": Reply({"data": [{"id": 1}]}),
        "/text": Reply(b"<html>"),
        "/login": Reply(b"who?", 401),
    }
    items = {"http.response.items": "/data"}
    with running_api(lambda request: replies.get(request.path, Reply(b"", 404))) as api:
        assert faults(HttpSource, f"{api.url}/good", **items) == {}
        assert (
            "no list at /rows"
            in faults(HttpSource, f"{api.url}/good", **{"http.response.items": "/rows"})[
                "http.response.items"
            ]
        )
        assert (
            "does not return JSON" in faults(HttpSource, f"{api.url}/text")["http.response.items"]
        )
        assert "http.authorization" in faults(HttpSource, f"{api.url}/login")["http.url"]
        assert "answers 404" in faults(HttpSource, f"{api.url}/missing")["http.url"]
        cursor = faults(HttpSource, f"{api.url}/good", **{"paging.mode": "cursor"})
        assert cursor.keys() == {"paging.cursor.pointer", "paging.parameter"}
        pointer = {"paging.cursor.pointer": "next"}
        assert (
            "JSON pointer" in faults(HttpSource, f"{api.url}/good", **pointer)[next(iter(pointer))]
        )


@pytest.mark.parametrize("status", [429, 503])
def test_a_check_that_a_busy_api_rejects_is_skipped(status: int) -> None:
    raw = {"name": "s", "topic": "t", "connector.class": "HttpSource"}
    with running_api(lambda _: Reply(b"", status, {"retry-after": "soon"})) as api:
        raw["http.url"] = f"{api.url}/busy"
        assert parse_config(HttpSource, raw).violations == ()
        found = {each.key.name: each for each in validate_config(HttpSource, raw)}
        assert found["http.url"].errors == ()
        (reason,) = found["http.url"].skipped_checks
    assert f"answers {status}" in reason


def test_a_check_that_fails_for_good_is_a_fault() -> None:
    with running_api(lambda _: Reply(b"", 500)) as api:
        assert "answers 500" in faults(HttpSource, f"{api.url}/broken")["http.url"]
