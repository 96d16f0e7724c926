"""Connectors in a few lines: a source from a generator, a sink from a function or generator.

Example:
    A source that polls an HTTP API for new rows, and a sink that prints rows::

        @source(
            "HttpPoller",
            ConfigDef(
                ConfigKey("url", ConfigType.STRING), ConfigKey("topic", ConfigType.STRING)
            ),
        )
        def poll(context):  # resumed only after the yielded batch is committed
            since = context.offset({}) or {"id": 0}
            while not context.stopping():
                rows = httpx.get(context.config["url"], params=since).json()
                if rows:
                    since = {"id": rows[-1]["id"]}
                topic = context.config["topic"]
                yield rows and SourceBatch.table(rows, [({}, since)], topic=topic, key="id")


        @sink("Printer")
        def print_rows(context, batch):
            for row in batch.arrow().run(iter):
                print(context.task, row)

``source`` and ``sink`` replace the decorated function by a class, which entry points can name.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from drover.config.config_def import ConfigDef
from drover.connector.connector import Connector, Guarantees
from drover.connector.offset_forms import OffsetForm
from drover.connector.offsets import offset_key, source_offsets
from drover.connector.sink import SinkBatch, SinkConnector, SinkTask, SinkTaskContext
from drover.connector.sink_control import Written
from drover.connector.source import SourceBatch, SourceConnector, SourceTask, SourceTaskContext
from drover.errors import Violation

#: What a source's generator yields: a batch, or an empty value if there is no data now.
Polled = Generator[Any, None, None]
#: What a sink's generator yields: the result of its last batch, in exchange for the next batch.
Answers = Generator[str | Written | None, SinkBatch | None, None]
Tasks = Callable[[Mapping[str, Any], int], Sequence[Mapping[str, str]]]
Validate = Callable[[Mapping[str, Any]], Sequence[Violation]]


class GeneratorError(TypeError):
    """The generator broke its protocol; the message states how."""


def source(
    name: str,
    settings: ConfigDef | None = None,
    *,
    version: str = "unknown",
    tasks: Tasks | None = None,
    validate: Validate | None = None,
    guarantees: Guarantees | None = None,
    structured: bool = False,
    text: bool = False,
    poll_has_effects: bool = False,
    offset_forms: Sequence[OffsetForm] = (),
) -> Callable[[Callable[[SourceTaskContext], Iterator[Any]]], type[SourceConnector]]:
    """Create a source from a generator function, which is called with the task's context.

    The generator yields a SourceBatch, or an empty value (None, an empty list) if there is no data
    now. It is resumed after the batch is committed, or later in the case of an empty value. It must
    not wait for data, and must run until ``context.stopping()``: a generator that ends earlier or
    raises makes its task FAILED. After a ``RetriableError`` the function is called again, with the
    offsets committed up to then.

    Args:
        name: The value of connector.class.
        settings: The source's own settings; none by default.
        version: The version, shown to operators.
        tasks: Returns the task configs for the parsed config and ``tasks.max``; one task by
            default.
        validate: See ``Connector.validate``.
        guarantees: See ``Connector``.
        structured: See ``Connector``; batches of ``SourceBatch.table`` are always structured.
        text: See ``Connector``.
        poll_has_effects: See ``SourceConnector``.
        offset_forms: See ``SourceConnector``.

    Raises:
        TypeError: The decorated object is not a generator function.
    """

    def decorate(function: Callable[[SourceTaskContext], Iterator[Any]]) -> type[SourceConnector]:
        if not inspect.isgeneratorfunction(function):
            raise TypeError(f"@source({name!r}) needs a generator function, which yields batches")
        task = _part_of(function, "task", (_GeneratorSource,), {"function": staticmethod(function)})
        members: dict[str, Any] = {
            "task_class": task,
            "version": version,
            "guarantees": guarantees,
            "structured": structured,
            "text": text,
            "poll_has_effects": poll_has_effects,
            "offset_forms": tuple(offset_forms),
        }
        made: type[SourceConnector] = _connector(
            name, function, (_OneFunction, SourceConnector), settings, tasks, validate, members
        )
        return made

    return decorate


def sink(
    name: str,
    settings: ConfigDef | None = None,
    *,
    version: str = "unknown",
    tasks: Tasks | None = None,
    validate: Validate | None = None,
    guarantees: Guarantees | None = None,
    structured: bool = True,
) -> Callable[[Callable[..., Any]], type[SinkConnector]]:
    """Create a sink from a function of a task's context and a batch, which returns the result of
    ``SinkTask.write``, or None.

    Or from a generator function of the context, for resources that are opened once: ``batch =
    yield`` receives the first batch, and each ``batch = yield result`` reports that the previous
    batch is durable. It receives None instead of a batch after ``context.call_after``. A generator
    that ends or raises makes its task FAILED. After a ``RetriableError`` the function is called
    again and receives the same batch. The generator is closed when the task stops.

    Args:
        name: The value of connector.class.
        settings: The sink's own settings; none by default.
        version: The version, shown to operators.
        tasks: Returns the task configs for the parsed config and ``tasks.max``; ``tasks.max`` tasks
            by default.
        validate: See ``Connector.validate``.
        guarantees: See ``Connector``.
        structured: See ``Connector``; False to receive keys and values as bytes.

    Raises:
        TypeError: The function has other parameters.
    """

    def decorate(function: Callable[..., Any]) -> type[SinkConnector]:
        generates = inspect.isgeneratorfunction(function)
        wanted = ("context",) if generates else ("context", "batch")
        found = len(inspect.signature(function).parameters)
        if found != len(wanted):
            raise TypeError(
                f"@sink({name!r}) needs a function of context and batch, or a generator function "
                f"of context; {function.__name__} has {found} parameters"
            )
        base = _GeneratorSink if generates else _FunctionSink
        task = _part_of(function, "task", (base,), {"function": staticmethod(function)})
        members: dict[str, Any] = {
            "task_class": task,
            "version": version,
            "guarantees": guarantees,
            "structured": structured,
        }
        made: type[SinkConnector] = _connector(
            name, function, (_OneFunction, SinkConnector), settings, tasks, validate, members
        )
        return made

    return decorate


class _OneFunction(Connector):
    """A connector whose task configs come from a function, or are always the same."""

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        self._config = config

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        split: Tasks | None = getattr(self, "split", None)
        if split is not None:
            return split(self._config, max_tasks)
        return [{} for _ in range(max_tasks if isinstance(self, SinkConnector) else 1)]


class _GeneratorSource(SourceTask):
    function: Callable[[SourceTaskContext], Polled]

    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._committed = {offset_key(p): (p, offset) for p, offset in context.offsets()}
        self._generator: Polled | None = None

    def poll(self) -> SourceBatch | None:
        if self._generator is None:
            committed = tuple(source_offsets(self._committed.values()))
            self._generator = type(self).function(replace(self._context, committed=committed))
        try:
            found = next(self._generator)
        except StopIteration:
            if self._context.stopping():
                return None
            raise GeneratorError(
                f"the generator of {_name(self)} ended: a source must run until "
                "context.stopping(), and yield None while there is no data"
            ) from None
        except BaseException:
            self._generator = None  # it cannot be resumed
            raise
        return _batch(self, found)

    def committed(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for partition, offset in offsets:
            if offset is None:
                self._committed.pop(offset_key(partition), None)
            else:
                self._committed[offset_key(partition)] = (dict(partition), dict(offset))

    def stop(self) -> None:
        if getattr(self, "_generator", None) is not None:
            assert self._generator is not None
            self._generator.close()


def _batch(task: SourceTask, found: object) -> SourceBatch | None:
    if found is None or isinstance(found, SourceBatch):
        return found
    if found is False or (hasattr(found, "__len__") and len(found) == 0):
        return None
    raise GeneratorError(
        f"the generator of {_name(task)} yielded {type(found).__name__}: it must yield a "
        "SourceBatch (see SourceBatch.table), or None while there is no data"
    )


class _FunctionSink(SinkTask):
    function: Callable[[SinkTaskContext, SinkBatch], str | Written | None]

    def start(self, context: SinkTaskContext) -> None:
        self._context = context

    def write(self, batch: SinkBatch) -> str | Written:
        return _answer(self, type(self).function(self._context, batch), "returned")


class _GeneratorSink(SinkTask):
    function: Callable[[SinkTaskContext], Answers]

    def start(self, context: SinkTaskContext) -> None:
        self._context = context
        self._generator: Answers | None = None

    def write(self, batch: SinkBatch) -> str | Written:
        return _answer(self, self._send(batch), "yielded")

    def idle(self) -> Written | None:
        answer = self._send(None)
        return None if answer is None else _written(_answer(self, answer, "yielded"))

    def _send(self, batch: SinkBatch | None) -> object:
        try:
            if self._generator is None:
                self._generator = type(self).function(self._context)
                next(self._generator)
            return self._generator.send(batch)
        except StopIteration:
            self._generator = None
            raise GeneratorError(
                f"the generator of {_name(self)} ended without a result for its batch: a sink "
                "must continue with `batch = yield`"
            ) from None
        except BaseException:
            self._generator = None  # it cannot be resumed
            raise

    def stop(self) -> None:
        if getattr(self, "_generator", None) is not None:
            assert self._generator is not None
            self._generator.close()


def _written(answer: str | Written) -> Written:
    return answer if isinstance(answer, Written) else Written(answer)


def _answer(task: SinkTask, found: object, how: str) -> str | Written:
    if found is None:
        return ""
    if isinstance(found, str | Written):
        return found
    raise GeneratorError(
        f"{_name(task)} {how} {type(found).__name__}: the result must be None, Written, or text "
        "that is committed with the offsets"
    )


def _name(task: object) -> str:
    return type(task).__name__


def _part_of(
    function: Callable[..., Any], part: str, bases: tuple[type, ...], members: dict[str, Any]
) -> Any:
    return type(
        function.__name__,
        bases,
        {
            **members,
            "__module__": function.__module__,
            "__qualname__": f"{function.__qualname__}.{part}_class",
            "__doc__": function.__doc__,
        },
    )


def _connector(
    name: str,
    function: Callable[..., Any],
    bases: tuple[type, ...],
    settings: ConfigDef | None,
    tasks: Tasks | None,
    validate: Validate | None,
    members: dict[str, Any],
) -> Any:
    own = settings if settings is not None else ConfigDef()
    found: dict[str, Any] = {"config_def": classmethod(lambda _cls: own), **members}
    if tasks is not None:
        found["split"] = staticmethod(tasks)
    if validate is not None:
        found["validate"] = classmethod(lambda _cls, config: validate(config))
    made = _part_of(function, "", bases, found)
    # the module's attribute is the function's name
    made.__name__, made.__qualname__ = name, function.__qualname__
    made.aliases = (name,)
    return made
