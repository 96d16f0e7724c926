"""Selects dead letters for a replay, or to be discarded, and repairs them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from drover.api.engine.v1 import engine_pb2
from drover.connector.catalogue import PluginRegistry
from drover.connector.connector import Connector
from drover.connector.settings import task_config
from drover.errors import InvalidArgumentError, Violation
from drover.model.dead_letters import (
    RANGES_MAX,
    REPLAY,
    REPLAY_WHERE,
    parse_ranges,
    ranges_text,
)
from drover.model.ids import TaskId
from drover.model.letter_states import count_of, offsets_of_ranges, ranges_of
from drover.transform.conditions import Condition
from drover_worker.engine.tasks.letter_check import LETTERS_MAX, LetterCheck
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.task_runner import TaskTools
from drover_worker.engine.topics.letter_repairs import (
    LetterFormat,
    encoded_repairs,
    repair_letters,
)

#: Dead letters that are listed as skipped.
_SKIPPED_MAX = 1_000


def check_dead_letters(
    plugins: PluginRegistry,
    tools: TaskTools,
    config: Mapping[str, str],
    command: engine_pb2.CheckDeadLetters,
) -> engine_pb2.CheckedDeadLetters:
    """The dead letters that meet the conditions, without the ones that a replay skips. Repairs are
    checked.

    Runs converters, transforms and plugin code.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
        InvalidArgumentError: INVALID_CONFIG; INVALID_REQUEST, a condition or a repair is not valid.
    """
    with _path(plugins, tools, config) as (path, kind, parsed):
        queue = path.errors.dead_letter_topic
        assert queue is not None
        path.repairs = encoded_repairs(tools.plane, letter_format(path), command.repairs)
        check = LetterCheck(
            kind,
            parsed,
            config["name"],
            path,
            tools.plane,
            tools.spark,
            selects_only=command.select_only,
        )
        decisions = check.begin(
            queue,
            offsets_of_ranges(parse_ranges(command.ranges)),
            _parsed(command.conditions),
            replayed=offsets_of_ranges(parse_ranges(command.replayed_ranges)),
            skips_newer=command.skip_newer,
        )
        checked = decisions.now()
    ranges = ranges_of(checked.selected)
    answer = engine_pb2.CheckedDeadLetters(
        ranges=ranges_text(ranges[:RANGES_MAX]), skipped_count=len(checked.refused)
    )
    if len(ranges) > RANGES_MAX:
        kept = count_of(offsets_of_ranges(ranges[:RANGES_MAX]))
        answer.notes.append(
            f"only the first {kept} of {count_of(checked.selected)} dead letters are taken: they "
            f"have more than {RANGES_MAX} ranges. Repeat the command for the others"
        )
    if checked.is_cut:
        answer.notes.append(
            f"only the first {LETTERS_MAX} dead letters were read: select others by --from"
        )
    for (partition, offset), each in sorted(checked.refused.items())[:_SKIPPED_MAX]:
        answer.skipped_letters.add(
            partition=partition, offset=offset, newer=each.is_newer, message=each.message
        )
    return answer


def repair_dead_letters(
    plugins: PluginRegistry,
    tools: TaskTools,
    config: Mapping[str, str],
    command: engine_pb2.RepairDeadLetters,
) -> engine_pb2.RepairedDeadLetters:
    """Write repaired dead letters to their queue. Runs converters.

    Raises:
        PluginNotFoundError: connector.class names a class that is not installed.
        InvalidArgumentError: INVALID_CONFIG; INVALID_REQUEST, a repair is not valid.
        UnavailableError: STORAGE_UNAVAILABLE.
    """
    open_letters = offsets_of_ranges(parse_ranges(command.open_ranges))
    with _path(plugins, tools, config) as (path, _, _):
        return repair_letters(tools.plane, letter_format(path), command, open_letters)


def letter_format(path: RecordPath) -> LetterFormat:
    """How the dead letters of a connector with a dead letter queue are encoded."""
    queue = path.errors.dead_letter_topic
    assert queue is not None
    key, value = path.letter_converters()
    return LetterFormat(queue, key, value, path.only_topic)


@contextmanager
def _path(
    plugins: PluginRegistry, tools: TaskTools, config: Mapping[str, str]
) -> Iterator[tuple[RecordPath, type[Connector], Mapping[str, Any]]]:
    """The record path of a config without its replay, with its class and the parsed config."""
    own = {key: each for key, each in config.items() if key not in (REPLAY, REPLAY_WHERE)}
    kind = plugins.find_of(own)
    parsed = task_config(kind, own, {})
    with closing(
        RecordPath(kind, parsed, TaskId(own["name"], 0), tools.spark, is_preview=True)
    ) as path:
        yield path, kind, parsed


def _parsed(texts: Iterable[str]) -> list[Condition]:
    found, faults = [], []
    for number, text in enumerate(texts):
        try:
            found.append(Condition(text))
        except ValueError as error:
            faults.append(Violation(f"conditions[{number}]", str(error)))
    if faults:
        raise InvalidArgumentError.listing(faults)
    return found
