"""The schemas of a plan as text: each schema once, with marks at the lines that change. Pure."""

from collections.abc import Iterator, Sequence

from drover.api.common.v1.preview_pb2 import StepSchemas, TopicSchema
from drover.api.connect.v1 import connect_service_pb2 as pb

_STRUCT = "struct<"


def schema_lines(plan: pb.PlanConnectorConfigResponse) -> Iterator[str]:
    """The schemas of the records that would be written, compared with the present ones.

    Without a present output they are compared with the records as read.
    """
    after = plan.output_schemas
    if not after.topics:
        yield from _lines_without_topics(plan)
        return
    has_present = bool(plan.present_output_schemas.topics)
    base = plan.present_output_schemas if has_present else plan.input_schemas
    compared = "as written now" if has_present else "as read"
    for topic in after.topics:
        before = _counterpart(topic, base.topics)
        yield _title(topic, before if has_present else None)
        if before is not None and (before.key, before.value) == (topic.key, topic.value):
            yield f"  the schema is the same {compared}"
        for part in ("key", "value"):
            text: str = getattr(topic, part)
            if text:
                yield f"  {part}"
                yield from _compared(text, getattr(before, part) if before is not None else text)
    for gone in base.topics if has_present else ():
        if not any(each.read_topic == gone.read_topic for each in after.topics):
            yield f"no records of {gone.read_topic} would be written; now: topic {gone.topic}"


def _title(after: TopicSchema, now: TopicSchema | None) -> str:
    """The topic's name after the transforms, with the names that it has elsewhere."""
    notes = []
    if after.read_topic and after.read_topic != after.topic:
        notes.append(f"read as {after.read_topic}")
    if now is not None and now.topic != after.topic:
        notes.append(f"written to {now.topic} now")
    return f"topic {after.topic or 'not set'}" + (f" ({', '.join(notes)})" if notes else "")


def _counterpart(topic: TopicSchema, base: Sequence[TopicSchema]) -> TopicSchema | None:
    """The schema of the same records: of the same topic as read, the equal one first."""
    same = [each for each in base if each.read_topic == topic.read_topic]
    equal = [each for each in same if (each.key, each.value) == (topic.key, topic.value)]
    return next(iter([*equal, *same]), None)


def _lines_without_topics(plan: pb.PlanConnectorConfigResponse) -> Iterator[str]:
    """The schemas of a worker of an earlier version: each distinct schema once."""
    shown: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
    for label, schemas in (
        ("records as read", plan.input_schemas),
        ("records written now", plan.present_output_schemas),
        ("records written after", plan.output_schemas),
    ):
        content = tuple(schemas.keys), tuple(schemas.values)
        if content in shown and any(content):
            yield f"{label}: the same as {shown[content]}"
            continue
        shown[content] = label
        yield from (f"{label}: {side} {text}" for side, text in _sides(schemas))


def _sides(schemas: StepSchemas) -> Iterator[tuple[str, str]]:
    yield from (("key", text) for text in schemas.keys)
    yield from (("value", text) for text in schemas.values)


def _compared(after: str, before: str) -> Iterator[str]:
    """The fields of a type, one a line: + added, - removed, ~ changed."""
    new, old = _fields(after), _fields(before)
    if new is None or old is None:
        yield f"    {after}" if after == before else f"  ~ {before or 'null'} -> {after}"
        return
    for name, kind in new.items():
        if name not in old:
            yield f"  + {name}: {kind}"
        elif old[name] != kind:
            yield f"  ~ {name}: {old[name]} -> {kind}"
        else:
            yield f"    {name}: {kind}"
    yield from (f"  - {name}: {kind}" for name, kind in old.items() if name not in new)


def _fields(text: str) -> dict[str, str] | None:
    """The fields of a struct's text with their types; None for another type."""
    if not (text.startswith(_STRUCT) and text.endswith(">")):
        return None
    fields: dict[str, str] = {}
    depth, start = 0, len(_STRUCT)
    for at in range(len(_STRUCT), len(text)):
        char = text[at]
        if char in "<[(":
            depth += 1
        elif char in ">])" and at < len(text) - 1:
            depth -= 1
        if (char == "," and depth == 0) or at == len(text) - 1:
            name, colon, kind = text[start:at].strip().partition(": ")
            if not colon or name in fields:
                return None
            fields[name] = kind
            start = at + 1
    return fields
