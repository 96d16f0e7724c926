"""HttpSink: sends records as HTTP requests."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import pyarrow as pa

from drover.connector import (
    REPEATED,
    Caution,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    OneOf,
    OverwriteKey,
    RetriableError,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SkippedCheck,
    TopicPartition,
    Violation,
)
from drover.connector.records import (
    KEY,
    OFFSET,
    PARTITION,
    VALUE,
    is_binary,
    is_schemaless,
    is_text,
    json_texts,
    original_topics,
)
from drover.connectors.aliases import HTTP_SINK
from drover.connectors.http.settings import (
    HTTP_SETTINGS,
    TOKEN_URL,
    URL,
    HttpSettings,
    contradictions,
)
from drover.connectors.output_ids import named_with, output_ids_of
from drover.connectors.refused_records import RefusedRecord, answer, write_batch
from drover.policy.egress import check_url
from drover.policy.foreign_errors import shown_url

METHOD = "http.request.method"
CONTENT_TYPE = "http.headers.content.type"
BATCHING, BATCH_SIZE = "batching.enabled", "batch.max.size"
PREFIX, SUFFIX, SEPARATOR = "batch.prefix", "batch.suffix", "batch.separator"
NULLS = "behavior.on.null.values"

IGNORE, DELETE, FAIL = "ignore", "delete", "fail"
EXTRA = "HTTP needs one more library on the workers: pip install 'drover-connect[http]'"
_NOT_ASKED = SkippedCheck(
    URL,
    "whether the API accepts the authorization, the method and the records was not checked: a "
    "request may change its data",
)
#: With these the URL would name the whole collection, or another one.
_NO_KEYS = ("", ".", "..")
_PLACE = re.compile(r"\$\{(topic|key)\}")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class Message:
    """A record as a request: its value as a body, None for no body, and its key as text, empty if
    there is none.
    """

    topic: str
    partition: int
    offset: int
    key: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class RequestLayout:
    """How records become requests of at most ``size`` records."""

    method: str
    url: str
    content_type: str
    size: int = 1
    prefix: str = ""
    suffix: str = ""
    separator: str = "\n"
    nulls: str = IGNORE

    @property
    def needs_key(self) -> bool:
        """Whether the URL has the key of a record."""
        return "${key}" in self.url

    def url_of(self, message: Message) -> str:
        """The URL for a record."""
        values = {"topic": message.topic, "key": message.key}
        return _PLACE.sub(lambda match: quote(values[match[1]], safe=""), self.url)

    def body_of(self, messages: Sequence[Message]) -> bytes:
        """The body for some records."""
        joined = self.separator.encode().join(each.body or b"" for each in messages)
        return self.prefix.encode() + joined + self.suffix.encode()


@dataclass(frozen=True)
class HttpWriter:
    """Sends a batch, record by record; picklable, and receives the whole batch in one call."""

    connector: str
    settings: HttpSettings
    layout: RequestLayout
    wait: Callable[[float], None] = _wait
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a row for each record that the server refused; it accepted the others."""
        from drover.connectors.http.client import HttpClient

        client = HttpClient(self.settings, self.layout.url)
        try:
            refused = [row for group in self._groups(batches) for row in self._send(client, group)]
        finally:
            client.close()
        if refused:
            yield answer(0, refused)

    def _groups(self, batches: Iterable[Any]) -> Iterator[list[Message]]:
        """Consecutive records of one topic partition and one URL, up to the size of a request."""
        layout, group = self.layout, list[Message]()
        for message in (each for batch in batches for each in messages_of(batch)):
            if message.body is None and layout.nulls == IGNORE:
                continue
            if group and not self._together(group, message):
                yield group
                group = []
            group.append(message)
        if group:
            yield group

    def _together(self, group: Sequence[Message], message: Message) -> bool:
        first = group[0]
        return (
            len(group) < self.layout.size
            and first.body is not None
            and message.body is not None
            and (first.topic, first.partition) == (message.topic, message.partition)
            and self.layout.url_of(first) == self.layout.url_of(message)
        )

    def _send(self, client: Any, group: list[Message]) -> list[RefusedRecord]:
        """Send records; if a request with several is refused, send them one by one."""
        from drover.connectors.http.client import RefusedError, UnauthorizedError

        layout, first, last = self.layout, group[0], group[-1]
        if first.body is None and layout.nulls == FAIL:
            return [_refused(first, f"has no value ({NULLS}={FAIL})")]
        if first.key in _NO_KEYS and layout.needs_key:
            reason = "has no key, or one that cannot be a part of a path, for ${key} in http.url"
            return [_refused(each, reason) for each in group]
        deletes = first.body is None
        output_id = self.output_ids.get(TopicPartition(first.topic, first.partition), "")
        output = named_with(f"{self.connector}/{first.topic}/{first.partition}", output_id)
        place = f"{output}/{first.offset}"
        headers = {
            "idempotency-key": place if first is last else f"{place}-{last.offset}",
            "content-type": layout.content_type,
        }
        try:
            self._repeated(
                client,
                "DELETE" if deletes else layout.method,
                layout.url_of(first),
                None if deletes else layout.body_of(group),
                headers,
            )
        except RefusedError as error:
            if isinstance(error, UnauthorizedError):
                raise  # not caused by a record
            if len(group) == 1:
                return [_refused(first, str(error))]
            return [row for each in group for row in self._send(client, [each])]
        return []

    def _repeated(
        self, client: Any, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        """Send one request, with retries while the failure may be temporary."""
        from drover.connectors.http.client import PassingHttpError, pause_s

        attempt = 0
        while True:
            if self.settings.rate:
                self.wait(1 / self.settings.rate)
            try:
                client.send(method, url, content=body, headers=headers)
            except PassingHttpError as error:
                attempt += 1
                if attempt > self.settings.max_retries:
                    raise RetriableError(str(error)) from error
                self.wait(pause_s(self.settings, attempt, error.wait_s))
            else:
                return


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """The records of a batch: bytes and texts unchanged, other values as JSON."""
    keys = _texts(batch, KEY)
    values = _texts(batch, VALUE)
    columns = original_topics(batch), batch.column(PARTITION), batch.column(OFFSET)
    places = (each.to_pylist() for each in columns)
    for topic, partition, offset, key, value in zip(*places, keys, values, strict=True):
        yield Message(topic, partition, offset, _key_text(key), value)


def _key_text(key: bytes | None) -> str:
    """A key as text; empty if there is none, or it is not text."""
    try:
        return "" if key is None else key.decode()
    except UnicodeDecodeError:
        return ""


def _texts(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    field, column = batch.schema.field(name), batch.column(name)
    if not is_binary(column.type):
        as_it_is = is_text(column.type) and not is_schemaless(field)
        texts = column.cast(pa.string()) if as_it_is else json_texts(field, column)
        column = texts.cast(pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _refused(message: Message, reason: str) -> RefusedRecord:
    return RefusedRecord(message.topic, message.partition, message.offset, reason)


class HttpSinkTask(SinkTask):
    """Sends each batch in order."""

    def start(self, context: SinkTaskContext) -> None:
        """Read the settings; executors make the requests."""
        config = context.config
        self._context = context
        self._writer = HttpWriter(
            context.task.connector, HttpSettings.of(config), layout_of(config)
        )

    def write(self, batch: SinkBatch) -> str:
        """Send the batch; reject each record that the server refuses."""
        writer = replace(self._writer, output_ids=output_ids_of(batch, self._context))
        write_batch(batch, writer)
        return ""


class HttpSink(SinkConnector):
    """Sends records to an HTTP API, one or several per request, in the order of their topic
    partitions.

    Requests are retried after a status of 408, 425, 429 or 500 and above; any other status of 400
    and above rejects the record, which the errors.* settings handle. After a crash records may be
    sent again, with the same Idempotency-Key header if each has its own request.
    """

    version = "0.1.0"
    aliases = ("HttpSink", "io.aiven.kafka.connect.http.HttpSinkConnector")
    other_settings = HTTP_SINK
    guarantees = REPEATED
    structured: ClassVar[bool] = True
    task_class = HttpSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return HTTP_SETTINGS | _SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        faults = contradictions(config)
        url = config.get(URL)
        if url is not None and "${" in urlsplit(url).netloc:
            faults.append(Violation(URL, "must not have ${topic} or ${key} in its host"))
        if config.get(NULLS) == DELETE and url is not None and "${key}" not in url:
            faults.append(Violation(NULLS, f"needs ${{key}} in {URL}: it selects what is deleted"))
        if config.get(BATCHING) is False:
            text = (
                f"has no effect without {BATCHING}=true: the body of a request is the value alone"
            )
            faults += (Caution(name, text) for name in (PREFIX, SUFFIX) if config.get(name))
        return faults

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The host must be allowed and resolvable, and the token server must give a token. Nothing
        is sent to the API: a request may change its data.
        """
        return host_faults(config[URL]) or [*_login_faults(config), _NOT_ASKED]

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """What a request overwrites is up to the server: taken to be what the key selects."""
        by_key = "${key}" in config[URL]
        by_topic = "${topic}" in config[URL]
        return (OverwriteKey(per_topic=by_topic or not by_key, keyless_appends=not by_key),)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """All tasks have the same config; they differ in their topic partitions."""
        return [{} for _ in range(max_tasks)]


def _login_faults(config: Mapping[str, Any]) -> list[Violation]:
    from drover.connectors.http.client import HttpClient, HttpError, PassingHttpError

    client = HttpClient(HttpSettings.of(config), config[URL])
    try:
        client.log_in()
    except PassingHttpError as error:
        return [(SkippedCheck if error.is_busy else Violation)(TOKEN_URL, str(error))]
    except HttpError as error:
        return [Violation(TOKEN_URL, str(error))]
    finally:
        client.close()
    return []


def layout_of(config: Mapping[str, Any]) -> RequestLayout:
    """The layout of requests, from a parsed config."""
    layout = RequestLayout(config[METHOD], config[URL], config[CONTENT_TYPE], nulls=config[NULLS])
    if not config[BATCHING]:
        return layout
    return replace(
        layout,
        size=config[BATCH_SIZE],
        prefix=config[PREFIX],
        suffix=config[SUFFIX],
        separator=config[SEPARATOR].replace(r"\n", "\n"),
    )


def host_faults(url: str) -> list[Violation]:
    """Whether the library is missing, or the host unknown or not allowed."""
    try:
        import httpx  # noqa: F401
    except ModuleNotFoundError:
        return [Violation("connector.class", EXTRA)]
    try:
        check_url(url)
    except PermissionError as error:
        return [Violation(URL, str(error))]
    except OSError as error:
        return [Violation(URL, f"{shown_url(url)}: the host name cannot be resolved: {error}")]
    return []


def _key(
    name: str, documentation: str, kind: ConfigType = ConfigType.STRING, **more: Any
) -> ConfigKey:
    return ConfigKey(
        name,
        kind,
        documentation=documentation,
        group="Requests",
        **{"importance": Importance.MEDIUM, **more},
    )


_SETTINGS = ConfigDef(
    _key(
        METHOD,
        "The method of requests.",
        default="POST",
        validator=OneOf("POST", "PUT", "PATCH"),
    ),
    _key(CONTENT_TYPE, "The Content-Type header of requests.", default="application/json"),
    _key(
        BATCHING,
        "Whether a request has several records of a topic partition.",
        ConfigType.BOOLEAN,
        default=False,
    ),
    _key(
        BATCH_SIZE,
        "The most records per request.",
        ConfigType.INT,
        default=500,
        validator=InRange(1, 100_000),
    ),
    _key(
        PREFIX,
        "Text before the records of a request, such as [.",
        default="",
        importance=Importance.LOW,
        trimmed=False,
    ),
    _key(
        SUFFIX,
        "Text after them, such as ].",
        default="",
        importance=Importance.LOW,
        trimmed=False,
    ),
    _key(
        SEPARATOR,
        r"Text between two of them, such as a comma; \n is a line end.",
        default=r"\n",
        importance=Importance.LOW,
        trimmed=False,
    ),
    _key(
        NULLS,
        "The handling of a record without a value: skip it (ignore), send a DELETE request "
        "(delete; with ${key} in http.url), or fail the record (fail).",
        default=IGNORE,
        validator=OneOf(IGNORE, DELETE, FAIL),
    ),
)
