"""Reads a Kafka Connect cluster through its REST API: GET requests only."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from drover.backoff import Backoff
from drover.migrate.http_get import Getter, RequestError
from drover.policy.foreign_errors import response_text

_NOT_FOUND = 404
_CONFLICT = 409
_TOO_MANY = 429
#: Of a server that has Kafka Connect's API without its root, such as a gateway in front of it.
_WITHOUT_ROOT = frozenset({403, 404, 405})
_SERVER_ERRORS = range(500, 600)
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.2, 3.0
_CAUSE_MAX_CHARS = 500
_STATE_MAX_CHARS = 40
_UNKNOWN_MAX = 50
_PLUGIN_KINDS = frozenset(
    {"source", "sink", "converter", "header_converter", "transformation", "predicate"}
)


class ReadError(Exception):
    """The cluster cannot be read; the message is one line with the request and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The limits of reading a cluster.

    Attributes:
        request_s: The time for one request.
        total_s: The time for all requests; what is not read within it is reported as unknown.
        total_bytes: The size of all responses together.
        attempts: How often a request is sent that is answered by 409 (a rebalance), 429 or 5xx.
        concurrency: How many requests run at the same time.
    """

    request_s: float = 30.0
    total_s: float = 300.0
    total_bytes: int = 64 * 1024 * 1024
    attempts: int = 6
    concurrency: int = 8


@dataclass(frozen=True, slots=True)
class OldTask:
    """A task's status: its number, state, and the first line of its failure."""

    number: int
    state: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldConnector:
    """A connector of Kafka Connect.

    Attributes:
        name: Its name.
        config: Its config, with all secrets that Kafka Connect returns.
        kind: ``source``, ``sink`` or ``unknown``.
        state: Such as RUNNING; ``unknown`` without a status.
        cause: The first line of the failure of the connector itself.
        tasks: The tasks' statuses.
        task_count: The number of task configs; None if not known.
        topics: The topics that it has used; None if not known.
        offsets: Its committed offsets, as pairs of partition and offset; None if not known.
    """

    name: str
    config: Mapping[str, str] = field(repr=False)
    kind: str = "unknown"
    state: str = "unknown"
    # a trace may have secrets
    cause: str = field(default="", repr=False)
    tasks: tuple[OldTask, ...] = field(default=(), repr=False)
    task_count: int | None = None
    topics: tuple[str, ...] | None = None
    offsets: tuple[tuple[Mapping[str, Any], Mapping[str, Any] | None], ...] | None = None

    @property
    def class_name(self) -> str:
        """``connector.class``."""
        return self.config.get("connector.class", "").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class OldCluster:
    """A Kafka Connect cluster, as far as its REST API shows it.

    Attributes:
        url: Its address.
        version: Its version.
        kafka_cluster_id: The id of its Kafka cluster.
        connectors: Its connectors, sorted by name.
        plugins: The kinds of each installed class by the class's name; None if not known.
        secret_settings: The settings of type PASSWORD of each connector class.
        unknown: What could not be read, with the reason.
        unread: The connectors whose configs could not be read.
    """

    url: str
    version: str = ""
    kafka_cluster_id: str = ""
    connectors: tuple[OldConnector, ...] = ()
    plugins: Mapping[str, str] | None = None
    secret_settings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def read_cluster(
    getter: Getter,
    url: str,
    limits: ReadLimits,
    *,
    sleep: Callable[[float], object] = _sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> OldCluster:
    """Read the cluster; what only completes the report may be missing, and is listed.

    Raises:
        ReadError: The server does not answer, or not as Kafka Connect.
    """
    return _Reader(getter, limits, sleep, now_s).cluster(url)


class _FormError(Exception):
    """A response has another form than Kafka Connect's."""


class _Reader:
    def __init__(
        self,
        getter: Getter,
        limits: ReadLimits,
        sleep: Callable[[float], object],
        now_s: Callable[[], float],
    ) -> None:
        self._getter = getter
        self._limits = limits
        self._sleep = sleep
        self._now_s = now_s
        self._end_s = now_s() + limits.total_s
        self._unknown: list[str] = []
        self._unread: list[str] = []
        self._without_tasks: list[str] = []

    def cluster(self, url: str) -> OldCluster:
        root = self._root()
        with ThreadPoolExecutor(self._limits.concurrency) as threads:
            connectors = sorted(self._connectors(threads), key=lambda each: each.name)
            classes = sorted({each.class_name for each in connectors} - {""})
            plugins = self._optional("/connector-plugins?connectorsOnly=false", _plugins)
            secrets = threads.map(lambda each: self._secret_settings(each, plugins), classes)
            found = list(threads.map(self._completed, connectors))
            deleted = self._deleted()
            by_class = dict(zip(classes, secrets, strict=True))
        unknown = sorted(set(self._unknown))
        more = len(unknown) - _UNKNOWN_MAX
        shown = [*unknown[:_UNKNOWN_MAX], *([f"and {more} more"] if more > 0 else ())]
        return OldCluster(
            url=url,
            version=root["version"],
            kafka_cluster_id=root["kafka_cluster_id"],
            connectors=tuple(each for each in found if each.name not in deleted),
            plugins=plugins,
            secret_settings=by_class,
            unknown=tuple(shown),
            unread=tuple(sorted(self._unread)),
        )

    def _root(self) -> Mapping[str, str]:
        try:
            return dict(self._read("/", _root))
        except RequestError as error:
            if error.status not in _WITHOUT_ROOT:
                raise ReadError(str(error)) from None
            self._unknown.append(str(error))
            return {"version": "", "kafka_cluster_id": ""}

    def _connectors(self, threads: ThreadPoolExecutor) -> list[OldConnector]:
        try:
            found = self._read("/connectors?expand=info&expand=status", _expanded)
        except RequestError as error:
            if error.status not in _SERVER_ERRORS:
                raise ReadError(str(error)) from None
            # one connector may be the cause: the others can be read one by one
            self._unknown.append(str(error))
            found = self._required("/connectors", _names)
        if isinstance(found, dict):
            return [_connector(name, *each) for name, each in found.items()]
        # before Kafka Connect 2.3 there is no expand
        return [each for each in threads.map(self._one, found) if each is not None]

    def _one(self, name: str) -> OldConnector | None:
        path = f"/connectors/{_encoded(name)}"
        try:
            info = self._read(path, _info)
        except RequestError as error:
            self._unknown.append(str(error))
            if error.status != _NOT_FOUND:
                self._unread.append(name)
            return None
        return _connector(name, info, self._optional(f"{path}/status", _status))

    def _deleted(self) -> frozenset[str]:
        """The connectors that were deleted since they were listed."""
        if not self._without_tasks:
            return frozenset()
        present = self._optional("/connectors", _names)
        if present is None:
            return frozenset()
        deleted = frozenset(self._without_tasks).difference(present)
        self._unknown += (
            f"connector {_shown(name)} was deleted in Kafka Connect while it was read"
            for name in sorted(deleted)
        )
        return deleted

    def _tasks(self, name: str, path: str) -> int | None:
        try:
            return int(self._read(path, _task_count))
        except RequestError as error:
            self._unknown.append(str(error))
            if error.status == _NOT_FOUND:
                self._without_tasks.append(name)
            return None

    def _completed(self, old: OldConnector) -> OldConnector:
        path = f"/connectors/{_encoded(old.name)}"
        tasks = self._tasks(old.name, f"{path}/tasks")
        topics = self._optional(f"{path}/topics", lambda found: _topics(found, old.name))
        offsets = self._optional(f"{path}/offsets", _offsets)
        return OldConnector(
            name=old.name,
            config=old.config,
            kind=old.kind,
            state=old.state,
            cause=old.cause,
            tasks=old.tasks,
            task_count=tasks,
            topics=topics,
            offsets=offsets,
        )

    def _secret_settings(
        self, class_name: str, plugins: Mapping[str, str] | None
    ) -> frozenset[str]:
        if plugins is not None and class_name not in plugins:
            return frozenset()
        path = f"/connector-plugins/{_encoded(class_name)}/config"
        return self._optional(path, _passwords) or frozenset()

    def _required(self, path: str, parse: Callable[[Any], Any]) -> Any:
        try:
            return self._read(path, parse)
        except RequestError as error:
            raise ReadError(str(error)) from None

    def _optional(self, path: str, parse: Callable[[Any], Any]) -> Any:
        try:
            return self._read(path, parse)
        except RequestError as error:
            self._unknown.append(str(error))
            return None

    def _read(self, path: str, parse: Callable[[Any], Any]) -> Any:
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_MAX_S, jitter=True)
        what = f"GET {path.partition('?')[0]}"
        while True:
            if self._now_s() > self._end_s:
                raise RequestError(f"{what}: not read within {self._limits.total_s:g} s")
            try:
                response = self._getter.get(path)
                break
            except RequestError as error:
                retried = error.status in (_CONFLICT, _TOO_MANY) or error.status in _SERVER_ERRORS
                if not retried or backoff.pauses + 1 >= self._limits.attempts:
                    raise
            self._sleep(backoff.next_pause_s())
        try:
            return parse(json.loads(response.body))
        except _FormError as error:
            text = f"did not return what Kafka Connect returns: {error}"
            raise RequestError(f"{what} {text}") from None
        except (ValueError, RecursionError):
            shown = response_text(200, response.media_type, len(response.body))
            raise RequestError(
                f"{what} returned no JSON: {shown}; the URL must be the one of Kafka Connect's "
                "REST API"
            ) from None


def _encoded(name: str) -> str:
    return quote(name, safe="")


def _connector(
    name: str, info: Mapping[str, Any], status: Mapping[str, Any] | None
) -> OldConnector:
    return OldConnector(
        name=name,
        config=info["config"],
        kind=info["type"],
        **(status or {}),
    )


def _root(found: Any) -> dict[str, str]:
    found = _object(found, "an object with the version")
    version = _text(found.get("version"), "version")
    return {
        "version": version[:_CAUSE_MAX_CHARS],
        "kafka_cluster_id": _optional_text(found.get("kafka_cluster_id"))[:_CAUSE_MAX_CHARS],
    }


def _names(found: Any) -> list[str]:
    if not isinstance(found, list):
        raise _FormError("expected a list of connectors")
    return [_text(each, "a connector's name") for each in found]


def _expanded(found: Any) -> Any:
    """The info and status of each connector; a list of names from an old version."""
    if isinstance(found, list):
        return _names(found)
    found = _object(found, "an object of connectors")
    connectors = {}
    for name, each in found.items():
        each = _object(each, f"connector {_shown(name)} as an object")
        info = _info(each.get("info"))
        status = _status(each["status"]) if each.get("status") is not None else None
        connectors[name] = (info, status)
    return connectors


def _info(found: Any) -> dict[str, Any]:
    found = _object(found, "info as an object")
    config = _object(found.get("config"), "config as an object")
    texts: dict[str, str] = {}
    for name, value in config.items():
        if value is not None:  # without a value, as if it were not set
            texts[name] = _text(value, f"the setting {_shown(name)} as a text")
    kind = found.get("type")
    return {"config": texts, "type": kind if kind in ("source", "sink") else "unknown"}


def _status(found: Any) -> dict[str, Any]:
    found = _object(found, "a status as an object")
    own = _object(found.get("connector"), "the connector's status as an object")
    tasks = found.get("tasks")
    if not isinstance(tasks, list):
        raise _FormError("expected a list of tasks")
    return {
        "state": _word(own.get("state")),
        "cause": _cause(own.get("trace")),
        "tasks": tuple(
            OldTask(_number(each.get("id")), _word(each.get("state")), _cause(each.get("trace")))
            for each in (_object(task, "a task's status as an object") for task in tasks)
        ),
    }


def _task_count(found: Any) -> int:
    if not isinstance(found, list):
        raise _FormError("expected a list of tasks")
    return len(found)


def _topics(found: Any, name: str) -> tuple[str, ...]:
    found = _object(found, "an object of connectors")
    own = _object(found.get(name), "the connector's topics as an object")
    topics = own.get("topics")
    if not isinstance(topics, list):
        raise _FormError("expected a list of topics")
    return tuple(sorted(_text(each, "a topic's name") for each in topics))


def _offsets(found: Any) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any] | None], ...]:
    entries = _object(found, "an object with offsets").get("offsets")
    if not isinstance(entries, list):
        raise _FormError("expected a list of offsets")
    pairs = []
    for each in entries:
        each = _object(each, "an offset as an object")
        offset = each.get("offset")
        pairs.append(
            (
                _object(each.get("partition"), "a partition as an object"),
                None if offset is None else _object(offset, "an offset as an object"),
            )
        )
    return tuple(pairs)


def _plugins(found: Any) -> dict[str, str]:
    """The kinds of classes by name; of a version without ``connectorsOnly``, connectors only."""
    if not isinstance(found, list):
        raise _FormError("expected a list of plugins")
    plugins = {}
    for each in found:
        each = _object(each, "a plugin as an object")
        kind = each.get("type")
        plugins[_text(each.get("class"), "a plugin's class")] = (
            kind if kind in _PLUGIN_KINDS else "unknown"
        )
    return plugins


def _passwords(found: Any) -> frozenset[str]:
    if not isinstance(found, list):
        raise _FormError("expected a list of settings")
    settings: Sequence[dict[str, Any]] = [_object(each, "a setting as an object") for each in found]
    return frozenset(
        _text(each.get("name"), "a setting's name")
        for each in settings
        if each.get("type") == "PASSWORD"
    )


def _object(found: Any, what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _FormError(f"expected {what}")
    return found


def _text(found: Any, what: str) -> str:
    if not isinstance(found, str):
        raise _FormError(f"expected {what}")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise _FormError(f"expected {what} in Unicode, without lone surrogates") from None
    return found


def _optional_text(found: Any) -> str:
    return found.encode(errors="replace").decode() if isinstance(found, str) else ""


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise _FormError("expected a task's number")
    return found


def _word(found: Any) -> str:
    word = _text(found, "a state")
    return (
        word if word.isascii() and word.isalpha() and len(word) <= _STATE_MAX_CHARS else "unknown"
    )


def _cause(found: Any) -> str:
    """The first line of a stack trace."""
    lines = _optional_text(found).strip().splitlines()
    return lines[0][:_CAUSE_MAX_CHARS] if lines else ""


def _shown(name: str) -> str:
    return repr(name[:100])
