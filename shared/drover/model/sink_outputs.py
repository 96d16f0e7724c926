"""Which topic and which output a sink's committed offset belongs to. Pure.

Drover stores both in front of the task's own metadata: Kafka Connect ignores metadata, so it can
still read the offset. A topic that was deleted and created again has another id, as in KIP-516.
"""

import json
import re
from dataclasses import dataclass
from hashlib import sha256

from drover.model.offsets import METADATA_MAX_BYTES

_PREFIX = re.compile(r"drover:([A-Za-z0-9_-]{0,22}):((?:[0-9a-f]{8})?)(:start)?;")
PREFIX_MAX_BYTES = 48
#: The limit for a task's own metadata.
TASK_METADATA_MAX_BYTES = METADATA_MAX_BYTES - PREFIX_MAX_BYTES
_OUTPUT_ID_CHARS = 8


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """The output of one topic partition.

    Attributes:
        topic_id: The id of its topic; empty if unknown.
        output_id: Empty for the first output of the topic partition, otherwise 8 hexadecimal
            digits.
    """

    topic_id: str = ""
    output_id: str = ""

    def is_of(self, topic_id: str) -> bool:
        """Whether it belongs to the topic with this id; an unknown id equals every other."""
        return self.topic_id == topic_id or not (self.topic_id and topic_id)

    def after_recreation(self, topic_id: str) -> "SinkOutput":
        """The output of the topic that was created under the same name."""
        return SinkOutput(topic_id, _output_id(topic_id))

    def in_topic(self, topic_id: str) -> "SinkOutput":
        """The output in the topic that exists now."""
        if not self.is_of(topic_id):
            return self.after_recreation(topic_id)
        return SinkOutput(topic_id or self.topic_id, self.output_id)

    def after_reset(self) -> "SinkOutput":
        """The output after the offsets were reset."""
        return SinkOutput(self.topic_id, _output_id(f"{self.topic_id}:{self.output_id}"))


@dataclass(frozen=True, slots=True)
class OutputMark:
    """A topic partition that had a committed offset.

    Attributes:
        output: Its output.
        offset: A committed offset; the last one may have been higher.
        is_reset: An operator reset the offset, so it is not lost; ``output`` is the next output.
    """

    output: SinkOutput
    offset: int
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class SinkMetadata:
    """The metadata of a sink's committed offset.

    Attributes:
        own: The task's metadata.
        output: The output that the offset belongs to.
        is_start: The offset was committed before the first record of its partition was written.
    """

    own: str = ""
    output: SinkOutput = SinkOutput()
    is_start: bool = False

    @classmethod
    def parsed(cls, text: str) -> "SinkMetadata":
        """The metadata in a committed offset; that of other programs is the task's."""
        prefix = _PREFIX.match(text)
        if prefix is None:
            return cls(text)
        topic_id, output_id, start = prefix.groups()
        return cls(text[prefix.end() :], SinkOutput(topic_id, output_id), start is not None)

    @property
    def text(self) -> str:
        """The metadata as it is committed."""
        if self.output == SinkOutput() and not self.is_start:
            return self.own
        start = ":start" if self.is_start else ""
        return f"drover:{self.output.topic_id}:{self.output.output_id}{start};{self.own}"


def encode_mark(mark: OutputMark) -> str:
    """A mark as the metadata of a missing offset."""
    return json.dumps(
        {
            "topic_id": mark.output.topic_id,
            "output_id": mark.output.output_id,
            "offset": mark.offset,
            "is_reset": mark.is_reset,
        },
        separators=(",", ":"),
    )


def decode_mark(text: str) -> OutputMark:
    """The mark in the metadata of a missing offset.

    Raises:
        ValueError: It is not a mark.
    """
    try:
        fields = json.loads(text)
        output = SinkOutput(str(fields["topic_id"]), str(fields["output_id"]))
        return OutputMark(output, int(fields["offset"]), fields.get("is_reset") is True)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a mark of an offset: {text[:80]!r}") from error


def _output_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_OUTPUT_ID_CHARS]
