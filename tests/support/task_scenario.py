"""The commands of task scenarios, and how the instructions of a core are written down.

sink [ahead] [limit=4] [wait=0] [rate=0] [topics=t] [regex] [reset=earliest] [far]    a new sink
source [apart] [ahead] [later] [prompt[=unavailable]] [interval=0] [rows=0] [batch=1] [rate=0]
       [behind=1] [fail=TakeStep]
                           a new source; far: only the coordinator has the claims;
                           behind: only the source's own topic has this offset;
                           prompt: a transaction ends when the task waits for it; the first one
                           with this failure
records t=5 u=1            records are appended to topics
rows 3                     the source has more rows
run                        one run of the task
answer [STALE_CLAIM]       the coordinator answers the commit in flight
publish [unavailable] [applied]    the transaction in progress ends
step [fenced] [applied]    it takes one step
fail WriteBatch retriable  the next operation of this type fails
letters 2                  so many records of the next batch become dead letters
returns t=3                how far the next write reports to have written
rewind t=1 [in-write] [in-idle]    the task object asks to read again
idle 500 [t=3]             the task object asks for a call without records, which returns t=3
pause   resume   stop   settle   abandon   overdue   recreate t   retention 4000   expire
taken [WriteBatch]         another worker claims the task, now or during an operation
advance 500                time passes
event ClaimConfirmed       an event that may not be possible now
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drover.config.patterns import Pattern
from drover.connector.offsets import parse_sink_offsets
from drover.model.offsets import CommitOutcome, CommittedOffset, TopicPartition
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.instructions import TaskInstruction
from tests.support.scenario import Command
from tests.support.task_driver import OTHER_CLAIM, SinkDriver, SourceDriver, TaskDriver, written

#: Instructions that every run has, or that only count.
_QUIET = (
    instructions.BeginReplay,
    instructions.CountPartitions,
    instructions.FetchOffsets,
    instructions.FindEnds,
    instructions.FindTopics,
    instructions.GetFirstMetadata,
    instructions.IdentifyTopics,
    instructions.MeasureLag,
    instructions.NoteCommitted,
    instructions.NotePassed,
    instructions.NoteRecovery,
    instructions.NoteSnapshot,
    instructions.NoteWritten,
    instructions.PlanRead,
    instructions.FindStarts,
    instructions.ReadClaim,
    instructions.ReadRequests,
    instructions.ReadRetention,
    instructions.StopWatching,
    instructions.TraceOutput,
    instructions.Wake,
    instructions.WakeReaders,
    instructions.Examine,
)


class TaskScenario:
    """Runs commands against one task; ``execute`` returns the trace of each."""

    def __init__(self) -> None:
        self._made: TaskDriver | None = None
        self._trace: list[str] = []

    def execute(self, command: Command) -> Iterable[str]:
        """Run one command."""
        self._trace = []
        commands: Mapping[str, Callable[[Command], object]] = {
            "sink": self._new_sink,
            "source": self._new_source,
            "records": lambda c: self._sink.ends.update(
                {t: self._sink.ends[t] + int(n) for t, n in c.options.items()}
            ),
            "rows": lambda c: self._more_rows(int(c.words[0])),
            "run": lambda _: self._task.run(),
            "answer": lambda c: self._task.answer(CommitOutcome(c.words[0]) if c.words else None),
            "publish": lambda c: self._publish(c, self._source.end_transaction),
            "step": lambda c: self._publish(c, self._source.take_transaction_step),
            "fail": lambda c: self._task.fail(*c.words),
            "letters": lambda c: setattr(self._sink, "letter_count", int(c.words[0])),
            "returns": lambda c: self._sink.returns.append(written(**_numbers(c))),
            "rewind": self._rewind,
            "idle": self._idle,
            "pause": lambda _: self._task.step(events.PauseSet(True)),
            "resume": lambda _: self._task.step(events.PauseSet(False)),
            "stop": lambda _: self._task.step(events.StopRequested()),
            "settle": lambda _: self._task.settle_stop(),
            "abandon": lambda _: self._task.step(events.Abandoned()),
            "overdue": lambda _: self._task.step(events.Overdue("poll() did not return")),
            "taken": self._taken,
            "recreate": lambda c: self._sink.recreate(c.words[0]),
            "retention": lambda c: setattr(self._sink, "retention_ms", int(c.words[0])),
            "expire": lambda _: self._sink.committed.clear(),
            "advance": lambda c: setattr(self._task, "now_ms", self._task.now_ms + int(c.words[0])),
            "event": lambda c: self._task.step(getattr(events, c.words[0])()),
        }
        commands[command.name](command)
        return self._trace

    @property
    def _task(self) -> TaskDriver:
        assert self._made is not None, "begin with sink or source"
        return self._made

    @property
    def _sink(self) -> SinkDriver:
        assert isinstance(self._made, SinkDriver)
        return self._made

    @property
    def _source(self) -> SourceDriver:
        assert isinstance(self._made, SourceDriver)
        return self._made

    def _new_sink(self, command: Command) -> None:
        topics = command.options.get("topics", "t").split(",")
        more: dict[str, Any] = {
            "batch_max_records": command.number("limit", 4),
            "batch_wait_ms": command.number("wait", 0),
            "rate_max_records": command.number("rate", 0),
            "auto_offset_reset": command.options.get("reset", "earliest"),
            "writes_ahead": "ahead" in command.words,
        }
        if "regex" in command.words:
            more |= {"topics": None, "pattern": Pattern("[a-z]")}
        made = SinkDriver(*topics, **more)
        made.claim_is_far = "far" in command.words
        self._begin(made)
        made.start()

    def _new_source(self, command: Command) -> None:
        settings: dict[str, Any] = {
            "publishes_apart": "apart" in command.words,
            "reads_ahead": "ahead" in command.words,
            "interval_ms": command.number("interval", 0),
            "rate_max_records": command.number("rate", 0),
        }
        made = SourceDriver(
            row_count=command.number("rows", 0),
            batch_rows=command.number("batch", 1),
            later="later" in command.words,
            prompt="prompt" in command.words or "prompt" in command.options,
            prompt_failure=command.options.get("prompt", ""),
            settings=settings,
        )
        if "behind" in command.options:
            position = f'{{"next":{command.number("behind", 0)}}}'
            made.behind = [CommittedOffset('{"lines":0}', position)]
        self._begin(made)
        if "fail" in command.options:
            made.fail(command.options["fail"], "unavailable")
        made.start()

    def _begin(self, driver: TaskDriver) -> None:
        self._made = driver
        driver.observer = self._see

    def _more_rows(self, count: int) -> None:
        self._source.row_count += count

    def _publish(self, command: Command, end: Callable[..., None]) -> None:
        failure = next((word for word in command.words if word != "applied"), "")
        end(failure, applied="applied" in command.words)

    def _taken(self, command: Command) -> None:
        if command.words:
            self._task.taken_in = command.words[0]
        else:
            self._task.claim = OTHER_CLAIM

    def _rewind(self, command: Command) -> None:
        wanted = {TopicPartition(topic, 0): at for topic, at in _numbers(command).items()}
        if "in-write" in command.words:
            self._sink.rewinds_in_write = wanted
        elif "in-idle" in command.words:
            self._sink.rewinds_in_idle = wanted
        else:
            self._sink.rewinds = wanted

    def _idle(self, command: Command) -> None:
        self._sink.idle_in_ms = int(command.words[0])
        if command.options:
            self._sink.idle_returns = written(**_numbers(command))

    def _see(self, instruction: TaskInstruction) -> None:
        if not isinstance(instruction, _QUIET):
            self._trace.append(_describe(instruction))


def _numbers(command: Command) -> dict[str, int]:
    return {name: int(number) for name, number in command.options.items()}


def _describe(instruction: TaskInstruction) -> str:
    match instruction:
        case instructions.EndRun(pause_ms, step):
            pause = "until it is woken" if pause_ms is None else f"for {pause_ms} ms"
            return f"the run ends: {step} {pause}"
        case instructions.EndFailed(error, cause, message):
            text = message or str(error).partition("\n")[0]
            return f"FAILED ({cause}): {text}"
        case instructions.EndFenced():
            return "FENCED"
        case instructions.EndStop(in_time):
            return f"the stop has ended{'' if in_time else ' too late'}"
        case instructions.NoteRetry(operation, message=message):
            return f"retry {operation}: {message}"
        case instructions.WriteBatch(plan):
            parts = [
                f"{e.topic}-{e.partition} {e.start_offset}..{e.end_offset}" for e in plan.ranges
            ]
            return f"write {', '.join(parts)}"
        case instructions.PublishLetters(rows):
            return f"publish {len(rows)} dead letters"
        case instructions.SendCommit(number, offsets, refreshes_marks, are_starts):
            kind = " of starts" * are_starts + " again" * refreshes_marks
            return f"commit {number}{kind}: {_offsets(offsets)}"
        case instructions.CountBatch(report):
            return f"count {report.read_count} records"
        case instructions.StartSink(committed):
            found = ", ".join(f"{k.topic}-{k.partition} {v.offset}" for k, v in committed.items())
            return f"start the task object at {found or 'its configured start'}"
        case instructions.StartSource(committed):
            return f"start the task object at {_offsets(committed) or 'its own start'}"
        case instructions.StopInstance():
            return "stop the task object"
        case instructions.ShowOffsets(committed):
            found = ", ".join(f"{k.topic}-{k.partition} {v.offset}" for k, v in committed.items())
            return f"show the committed offsets {found}"
        case instructions.WatchTopics(next_offsets):
            found = ", ".join(f"{t}-{n} {at}" for (t, n), at in sorted(next_offsets.items()))
            return f"watch {found or 'the topics'}"
        case instructions.Log(text):
            return f"log: {text}"
        case instructions.Stage(batch):
            return f"stage the rows before {_next(batch.offsets[0][1])}"
        case instructions.Publish(_, offsets):
            return f"publish: {_offsets(offsets)}"
        case instructions.BeginTransaction(number, step, staged, offsets):
            content = f"{len(staged)} batches: {_offsets(offsets)}"
            return f"transaction {number} of {content}; {step}"
        case instructions.ContinueTransaction(number, step):
            return f"transaction {number}: {step}"
        case instructions.TakeStep(step, offsets):
            return f"{step}: {_offsets(offsets)}" if offsets else f"{step}"
        case instructions.Notify(offsets, placement, batch_count):
            placed = f", placed {batch_count} batches" if placement is not None else ""
            return f"notify: {_next(offsets[0][1])}{placed}"
        case instructions.Discard(staged):
            return f"discard {len(staged)} batches"
        case instructions.NoteRestored(total_count):
            return f"{total_count} offsets were restored"
        case _:
            return _words(type(instruction).__name__)


def _offsets(offsets: Iterable[Any]) -> str:
    found = []
    for each in offsets:
        if "kafka_topic" in each.partition_json:
            ((key, offset),) = parse_sink_offsets([each]).items()
            found.append(f"{key.topic}-{key.partition} {offset.offset}")
        else:
            found.append(each.offset_json.partition(":")[2].rstrip("}"))
    return ", ".join(found)


def _next(offset: Any) -> str:
    return str(offset["next"])


def _words(name: str) -> str:
    """``ConfirmClaim`` as ``confirm claim``."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).strip()
