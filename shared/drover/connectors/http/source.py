"""HttpSource: reads the responses of an HTTP API as rows."""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from drover.connector import (
    REPLAYED,
    TOPIC_NAME,
    ArrowRows,
    Caution,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OffsetForm,
    OneOf,
    RetriableError,
    SkippedCheck,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    visible_when,
    visible_with,
)
from drover.connector.records import ERROR_COLUMN
from drover.connectors.ddl import ddl_fault, to_ddl
from drover.connectors.files.file_units import parsed_lines
from drover.connectors.files.formats.exact_json import exact_text, parsed
from drover.connectors.files.formats.text_rows import JSON, TextOptions, inferred_types
from drover.connectors.http.paging import (
    CURSOR,
    LINK,
    NONE,
    OFFSET,
    PAGE,
    Paging,
    PagingError,
    Place,
    greatest,
    items_of,
    next_place,
    parameters_of,
    pointer_fault,
)
from drover.connectors.http.settings import (
    HTTP_SETTINGS,
    URL,
    HttpSettings,
    contradictions,
)
from drover.connectors.http.sink import host_faults
from drover.connectors.key_columns import key_columns
from drover.connectors.offset_changes import refuse_misshapen
from drover.policy.foreign_errors import shown_url

TOPIC, KEY, SCHEMA = "topic", "key", "schema"
METHOD, BODY = "http.request.method", "http.request.body"
PARAMETERS = "http.request.parameters"
ITEMS, MAX_BYTES = "http.response.items", "http.response.max.bytes"
MODE = "paging.mode"
POINTER, PARAMETER = "paging.cursor.pointer", "paging.parameter"
SIZE_PARAMETER, SIZE, FIRST = "paging.size.parameter", "paging.size", "paging.first"
MORE_POINTER, EMPTY_ENDS = "paging.more.pointer", "paging.empty.ends"
MAX_PAGES = "paging.max.pages"
INCREMENTAL, INCREMENTAL_POINTER = "incremental.parameter", "incremental.pointer"
INITIAL = "incremental.initial"
RUN_MS = "run.interval.ms"
TOLERANCE = "errors.tolerance"

_log = logging.getLogger(__name__)
#: The limit for the check of the API, below the worker's limit for validating a config.
_LOOK_S = 10


@dataclass(frozen=True)
class JsonItems:
    """Items of a response as lines of JSON; for ArrowRows."""

    lines: bytes
    origin: str
    ddl: str | None

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows."""
        del number
        if not self.lines:
            return
        options = TextOptions(JSON, ddl=self.ddl, exact=self.ddl is not None)
        if self.ddl is None:
            options = replace(options, ddl=to_ddl(inferred_types(self.lines, options)) or None)
        yield from parsed_lines(self.lines, self.origin, 1, options)


@dataclass(slots=True)
class _Run:
    """One pass through the pages: its start value, its position, and the greatest value so far."""

    since: Any
    place: Place
    greatest: Any


class HttpSourceTask(SourceTask):
    """Requests one page after another, and starts again after a pause."""

    def start(self, context: SourceTaskContext) -> None:
        """Resume at the next page."""
        from drover.connectors.http.client import HttpClient

        config = context.config
        self._context = context
        self._settings = HttpSettings.of(config)
        self._client = HttpClient(self._settings, config[URL])
        self._paging = paging_of(config)
        self._partition = {"url": config[URL]}
        offset = context.offset(self._partition) or {}
        self._offset: Mapping[str, Any] = offset
        self._since = offset.get("incremental", config[INITIAL])
        self._run: _Run | None = None
        if offset.get("next") is not None:
            place = Place.of_offset(offset["next"])
            self._run = _Run(self._since, place, offset.get("greatest"))
        self._fields: frozenset[str] = frozenset()
        self._not_before_s = 0.0
        self._attempt = 0

    def poll(self) -> SourceBatch | None:
        """The items of the next page; None during a pause, or if nothing is new."""
        from drover.connectors.http.client import PassingHttpError, pause_s

        if time.monotonic() < self._not_before_s:
            return None
        config = self._context.config
        run = self._run or _Run(self._since, Place(), self._since)
        try:
            answer = self._client.send(
                config[METHOD],
                request_url(config, self._paging, run.place, run.since),
                content=(config[BODY] or "").encode() or None,
                headers={"accept": "application/json"},
                max_bytes=config[MAX_BYTES],
            )
        except PassingHttpError as error:
            self._attempt += 1
            if self._attempt > config["max.retries"]:
                text = f"{error}; failed after {self._attempt} attempts"
                raise RetriableError(text) from error
            pause = pause_s(self._settings, self._attempt, error.wait_s)
            self._not_before_s = time.monotonic() + pause
            return None
        self._attempt = 0
        document = _document(answer.body, answer.url)
        items = items_of(document, config[ITEMS], self._paging.pointers, self._fields)
        self._fields = frozenset(document) if isinstance(document, Mapping) else frozenset()
        self._advance(run, document, items, answer)
        return self._batch(items, run, shown_url(answer.url))

    def _advance(self, run: _Run, document: Any, items: list[Any], answer: Any) -> None:
        """Compute the next position from a response."""
        config = self._context.config
        if config[INCREMENTAL_POINTER]:
            run.greatest = greatest(items, config[INCREMENTAL_POINTER], run.greatest)
        following = next_place(
            self._paging, run.place, document, items, link=answer.next_link, url=answer.url
        )
        pause_s = 1 / self._settings.rate if self._settings.rate else 0.0
        if following.place is None:
            if following.gap is None:
                self._since = run.greatest
            else:  # the next pass must request the items that this one did not reach
                _log.warning(
                    "%s: %s: this pass ends before the last page, and the next one starts at the "
                    "first page: check the settings of paging",
                    shown_url(answer.url),
                    following.gap,
                )
            self._run = None
            pause_s = max(pause_s, config[RUN_MS] / 1_000)
        else:
            run.place = following.place
            self._run = run
        self._not_before_s = time.monotonic() + pause_s

    def _batch(self, items: list[Any], run: _Run, origin: str) -> SourceBatch | None:
        config, spark = self._context.config, self._context.spark
        offset: dict[str, Any] = {"incremental": self._since, "next": None}
        if self._run is not None:
            offset |= {"next": run.place.to_offset(), "greatest": run.greatest}
        if not items and self._run is None and not self._offset.get("next"):
            return None  # nothing new: the committed offset remains valid
        self._offset = offset
        rows = ArrowRows(spark, JsonItems(_lines(items), origin, config[SCHEMA]), 1, None)
        return SourceBatch.table(
            rows,
            [(self._partition, offset)],
            topic=config[TOPIC],
            key=key_columns(config[KEY]),
        )

    def stop(self) -> None:
        """Close its connections."""
        if hasattr(self, "_client"):
            self._client.close()


class HttpSource(SourceConnector):
    """Reads an HTTP API with JSON responses: each item of a response becomes a row.

    Pages are followed by links, cursors or numbers; a parameter may request only items above the
    greatest value seen. There is one task; after a crash it resumes at the next page.
    """

    version = "0.1.0"
    aliases = ("HttpSource",)
    guarantees = REPLAYED
    offset_forms = (OffsetForm({"url": str}, optional=("incremental", "next", "greatest")),)
    structured: ClassVar[bool] = True
    task_class = HttpSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return HTTP_SETTINGS | _SETTINGS

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The settings must not contradict each other."""
        return [*contradictions(config), *_contradictions(config)]

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The API must return items."""
        return host_faults(config[URL]) or _api_faults(config)

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
        del config
        refuse_misshapen(changes, partition={"url": str}, counts=())
        return True

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task, because pages are read in sequence."""
        del max_tasks
        return [{}]


def paging_of(config: Mapping[str, Any]) -> Paging:
    """The paging of a parsed config."""
    return Paging(
        config[MODE],
        config[POINTER] or "",
        config[PARAMETER] or "",
        config[SIZE_PARAMETER],
        config[SIZE],
        config[FIRST],
        config[MAX_PAGES],
        config[MORE_POINTER] or "",
        config[EMPTY_ENDS],
    )


def request_url(config: Mapping[str, Any], paging: Paging, place: Place, since: Any) -> str:
    """The URL of a page."""
    import httpx

    if paging.mode == LINK and place.at is not None:
        return str(place.at)  # a link is complete
    changing = parameters_of(paging, place)
    if config[INCREMENTAL] and since is not None:
        changing = {config[INCREMENTAL]: str(since)} | changing
    url = httpx.URL(config[URL])
    given = (each.partition("=")[::2] for each in config[PARAMETERS] or ())
    # a name may be given several times, such as the values of a filter
    fixed = [each for each in (*url.params.multi_items(), *given) if each[0] not in changing]
    return str(url.copy_with(params=httpx.QueryParams([*fixed, *changing.items()])))


def _document(body: bytes, url: str) -> Any:
    try:
        return parsed(body)
    except (ValueError, RecursionError):
        # neither the message nor its cause has parts of the response
        raise PagingError(f"{shown_url(url)} does not return JSON") from None


def _lines(items: list[Any]) -> bytes:
    return "".join(f"{_line(each)}\n" for each in items).encode()


def _line(item: Any) -> str:
    """An item as JSON, with all digits of its numbers."""
    try:
        return json.dumps(item, ensure_ascii=False)
    except TypeError:  # it has a number of more digits than a float
        return exact_text(item)


def _api_faults(config: Mapping[str, Any]) -> list[Violation]:
    """Faults in the response with the first page."""
    from drover.connectors.http.client import HttpClient, HttpError, PassingHttpError

    settings = HttpSettings.of(config)
    short = replace(settings, timeout_s=min(_LOOK_S, settings.timeout_s))
    client = HttpClient(short, config[URL])
    try:
        answer = client.send(
            config[METHOD],
            request_url(config, paging_of(config), Place(), config[INITIAL]),
            content=(config[BODY] or "").encode() or None,
            headers={"accept": "application/json"},
            max_bytes=config[MAX_BYTES],
        )
        document = _document(answer.body, answer.url)
        items = items_of(document, config[ITEMS], paging_of(config).pointers)
    except PassingHttpError as error:
        kind = SkippedCheck if error.is_busy else Violation
        return [kind(URL, str(error))]
    except HttpError as error:
        return [Violation(URL, str(error))]
    except PagingError as error:
        return [Violation(ITEMS, str(error))]
    finally:
        client.close()
    return [*_row_faults(config, items, shown_url(answer.url)), *_order_faults(config, items)]


def _row_faults(config: Mapping[str, Any], items: list[Any], origin: str) -> Iterator[Violation]:
    """Items of the first page that are no rows, and key fields that the rows lack."""
    batches = list(JsonItems(_lines(items), origin, config[SCHEMA])(0))
    bad = [batch for batch in batches if ERROR_COLUMN in batch.schema.names]
    if bad:
        tolerates = config[TOLERANCE] == "all"
        kind, setting = Caution if tolerates else Violation, SCHEMA if config[SCHEMA] else ITEMS
        count = sum(batch.num_rows for batch in bad)
        reason = bad[0].column(ERROR_COLUMN)[0].as_py()
        yield kind(
            setting,
            f"{count} of the {len(items)} items of the first page cannot be read: {reason}",
        )
    good = next((batch for batch in batches if ERROR_COLUMN not in batch.schema.names), None)
    missing = [] if good is None else [n for n in config[KEY] or () if n not in good.schema.names]
    if missing:
        yield Violation(KEY, f"names {missing[0]}, which no item of the first page has")


def _order_faults(config: Mapping[str, Any], items: list[Any]) -> Iterator[Violation]:
    """Whether the greatest value of the first page can be found."""
    pointer = config[INCREMENTAL_POINTER]
    if not (config[INCREMENTAL] and pointer and items):
        return
    try:
        if greatest(items, pointer, config[INITIAL]) is None:
            text = f"no item of the first page has a value at {pointer}: each pass reads all items"
            yield Caution(INCREMENTAL_POINTER, text)
    except PagingError as error:
        yield Violation(INCREMENTAL_POINTER, str(error))


def _contradictions(config: Mapping[str, Any]) -> list[Violation]:
    mode = config.get(MODE, NONE)
    needed = {CURSOR: (POINTER, PARAMETER), OFFSET: (PARAMETER,), PAGE: (PARAMETER,)}
    faults = [
        Violation(name, f"is required with {MODE}={mode}")
        for name in needed.get(mode, ())
        if name in config and not config[name]
    ]
    if (
        config.get(INCREMENTAL)
        and INCREMENTAL_POINTER in config
        and not config[INCREMENTAL_POINTER]
    ):
        faults.append(Violation(INCREMENTAL_POINTER, f"is required with {INCREMENTAL}"))
    return faults


def _parameters_fault(parameters: list[str]) -> str | None:
    for number, each in enumerate(parameters, start=1):
        name, equals, _ = each.partition("=")
        if not name or not equals:  # its text may be a secret
            return (
                f"must have parameters as name=value; item {number} is none: put a value with a "
                f"comma into {URL}, such as https://api.example.com/orders?fields=id,name"
            )
    return None


def _key(
    name: str, documentation: str, kind: ConfigType = ConfigType.STRING, **more: Any
) -> ConfigKey:
    group = "Paging" if name.startswith(("paging", "incremental")) else "Requests"
    return ConfigKey(
        name,
        kind,
        documentation=documentation,
        group=group,
        **{"default": None, "importance": Importance.MEDIUM, **more},
    )


_POINTER = Check(pointer_fault)
_SETTINGS = ConfigDef(
    ConfigKey(
        TOPIC,
        ConfigType.STRING,
        importance=Importance.HIGH,
        group="Topic",
        documentation="The topic to write to.",
        validator=TOPIC_NAME,
    ),
    ConfigKey(
        KEY,
        ConfigType.LIST,
        default=None,
        group="Topic",
        documentation="The field for the record's key; several fields become a struct.",
        validator=NonEmpty(),
    ),
    ConfigKey(
        SCHEMA,
        ConfigType.STRING,
        default=None,
        group="Topic",
        documentation="The fields and their types, such as: id bigint, price decimal(10,2). By "
        "default they are inferred from each response.",
        validator=Check(ddl_fault),
    ),
    _key(METHOD, "The HTTP method.", default="GET", validator=OneOf("GET", "POST")),
    _key(
        BODY,
        "The request body, with POST.",
        recommender=visible_when(METHOD, "POST"),
    ),
    _key(
        PARAMETERS,
        "Query parameters of each request, as name=value; a name may be given several times.",
        ConfigType.LIST,
        validator=Check(_parameters_fault),
    ),
    _key(
        ITEMS,
        "The location of the items in a response, as a JSON pointer such as /data/items; by "
        "default the response is the list, or a single item.",
        default="",
        importance=Importance.HIGH,
        validator=_POINTER,
    ),
    _key(
        MAX_BYTES,
        "The largest size of a response.",
        ConfigType.INT,
        default=64 * 1024 * 1024,
        importance=Importance.LOW,
        validator=InRange(1_024),
    ),
    _key(
        RUN_MS,
        "The pause after the last page, in milliseconds.",
        ConfigType.INT,
        default=60_000,
        validator=InRange(1, 86_400_000),
    ),
    _key(
        MODE,
        "How pages follow each other: by the Link header or a link in the response (link), a "
        "cursor in the response (cursor), the number of the first item (offset) or of the page "
        "(page); none for a single page.",
        default=NONE,
        importance=Importance.HIGH,
        validator=OneOf(NONE, LINK, CURSOR, OFFSET, PAGE),
    ),
    _key(
        POINTER,
        "The location of the cursor or link in the response.",
        validator=_POINTER,
        recommender=visible_when(MODE, LINK, CURSOR),
    ),
    _key(
        PARAMETER,
        "The query parameter for the cursor, or for the number of the item or page.",
        recommender=visible_when(MODE, CURSOR, OFFSET, PAGE),
    ),
    _key(
        SIZE_PARAMETER,
        "The query parameter for the number of items per page. With it a page with fewer items "
        "than the one before it is the last one, otherwise an empty page.",
    ),
    _key(
        SIZE,
        "The number of items per page, for that parameter.",
        ConfigType.INT,
        default=100,
        validator=InRange(1),
        recommender=visible_with(SIZE_PARAMETER),
    ),
    _key(
        FIRST,
        "The number of the first page or item.",
        ConfigType.INT,
        default=0,
        recommender=visible_when(MODE, OFFSET, PAGE),
    ),
    _key(
        MORE_POINTER,
        "The location of the value in the response that is false on the last page, such as "
        "/has_more.",
        validator=_POINTER,
        recommender=visible_when(MODE, LINK, CURSOR, OFFSET, PAGE),
    ),
    _key(
        EMPTY_ENDS,
        "Whether a page without items is the last one, even if the response has another link or "
        "cursor.",
        ConfigType.BOOLEAN,
        default=False,
        recommender=visible_when(MODE, LINK, CURSOR),
    ),
    _key(
        MAX_PAGES,
        "The most pages of a pass. A pass of more pages ends there with a warning, and the next "
        "one starts at the first page again.",
        ConfigType.INT,
        default=10_000,
        importance=Importance.LOW,
        validator=InRange(1),
    ),
    _key(
        INCREMENTAL,
        "The query parameter that requests items above a value. Without it each pass reads all "
        "items again.",
    ),
    _key(
        INCREMENTAL_POINTER,
        "The location of that value in an item, such as /updated_at; the next pass requests items "
        "above the greatest value.",
        validator=_POINTER,
        recommender=visible_with(INCREMENTAL),
    ),
    _key(
        INITIAL,
        "The value for the first pass; by default the parameter is omitted.",
        recommender=visible_with(INCREMENTAL),
    ),
)
