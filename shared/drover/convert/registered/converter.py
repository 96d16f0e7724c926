"""The base class of converters that write a schema id of a registry before each value."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.convert.converter import Converter, Decoded
from drover.convert.registered.registry import Access, Registry, SchemaFormat, registry_at
from drover.convert.registered.settings import RECORD_NAME, TOPIC_NAME, access_of
from drover.record.errors import RecordError, RowsError, rows_at
from drover.record.schema import Schema, arrow_field, schema_of

_MAGIC = 0
#: The magic byte and the id of the schema.
PREFIX_BYTES = 5


class RegistryConverter(Converter):
    """Writes values after the id of their schema, in the wire format of Confluent's converters.

    ``called`` is the format's name in messages.
    """

    called: ClassVar[str]

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        side = "key" if is_key else "value"
        self._access: Access = access_of(config)
        self._strategy: str = config[f"{side}.subject.name.strategy"].rpartition(".")[2]
        self._register: bool = config["auto.register.schemas"]
        self._latest: bool = config["use.latest.version"]

    @property
    @abstractmethod
    def schema_format(self) -> SchemaFormat:
        """The format of the schemas."""

    @abstractmethod
    def text_of(self, schema: Schema) -> str:
        """The schema's text to register; raises SchemaError."""

    @abstractmethod
    def record_name(self, parsed: Any, schema: Schema) -> str | None:
        """The record name of a parsed schema; None if its values are not records."""

    @abstractmethod
    def write(self, field: pa.Field, values: Any, parsed: Any, before: bytes, strict: bool) -> Any:
        """Encode values with a parsed schema, each after the bytes ``before``.

        With ``strict``, fields that the schema lacks are an error; otherwise they are omitted.
        """

    @abstractmethod
    def read(self, values: Any, known: Any) -> Sequence[Decoded]:
        """Decode non-null values of one schema id; ``known`` is the result of ``for_reading``."""

    def encode(self, field: pa.Field, values: Any, topics: Any) -> Any:
        """See Converter.

        Raises:
            RowsError: Records of some topics cannot be encoded with their registered schemas.
            RetriableError: The registry is unreachable or busy.
            PassError: The registry denies access.
        """
        schema = schema_of(field)
        own = type(self).__name__
        if schema is None:
            raise RecordError(f"{own} writes values with a schema, and these have none")
        if topics is None:
            raise RecordError(f"{own} is for keys and values, not for headers")
        text = self.text_of(schema)
        parsed = self.schema_format.parse(text, ())
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist() if len(encoded) else []
        if len(names) == 1 and not topics.null_count:
            return self._encode(names[0], field, values, text, parsed)
        return self._encode_apart(names, encoded.indices, field, values, text, parsed)

    def decode(self, values: Any, topics: Any) -> Sequence[Decoded]:
        """See Converter. Null bytes are a null without a schema.

        Raises:
            RowsError: Records have another format, or a schema id unknown to the registry.
            RetriableError: The registry is unreachable or busy.
            PassError: The registry denies access.
        """
        registry = registry_at(self._access, self.schema_format)
        tombstones = np.asarray(values.is_null())
        ids, bad = self._ids(values, tombstones)
        known: dict[int, Any] = {}
        for schema_id in np.unique(ids[ids >= 0]).tolist():
            try:
                known[schema_id] = registry.schema_of_id(schema_id)
            except RecordError as error:
                bad |= dict.fromkeys(np.flatnonzero(ids == schema_id).tolist(), error)
        if bad:
            raise RowsError(bad)
        found = [
            each
            for schema_id, schema in known.items()
            for each in self._read(values, ids == schema_id, schema)
        ]
        if tombstones.any():
            rows = pa.array(np.flatnonzero(tombstones))
            found.append(
                Decoded(rows, arrow_field("value", None), pa.nulls(len(rows), pa.string()))
            )
        return found

    def _encode_apart(
        self, names: list[str], indices: Any, field: pa.Field, values: Any, text: str, parsed: Any
    ) -> Any:
        """Encode topic by topic; an error of a topic applies to all its records."""
        owners = np.asarray(indices.fill_null(-1))
        parts, rows = [], []
        bad: dict[int, RecordError] = {}
        for number in np.unique(owners).tolist():
            here = np.flatnonzero(owners == number)
            try:
                if number < 0:
                    raise RecordError("the record has no topic, which its subject is called after")
                part = values.take(pa.array(here))
                parts.append(self._encode(names[number], field, part, text, parsed))
                rows.append(here)
            except RecordError as error:
                bad |= dict.fromkeys(here.tolist(), error)
        if bad:
            raise RowsError(bad)
        if not parts:
            return pa.array([], pa.binary())
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))

    def _encode(self, topic: str, field: pa.Field, values: Any, text: str, parsed: Any) -> Any:
        registry = registry_at(self._access, self.schema_format)
        strict = True
        try:
            subject = self._subject(topic, parsed, field)
            schema_id, parsed = self._target(registry, subject, text, parsed)
            strict = self.config["latest.compatibility.strict"]
        except RecordError as error:
            raise RowsError(dict.fromkeys(range(len(values)), error)) from None
        before = bytes([_MAGIC]) + schema_id.to_bytes(4, "big")
        return self.write(field, values, parsed, before, strict)

    def _target(self, registry: Registry, subject: str, text: str, parsed: Any) -> tuple[int, Any]:
        """The id and the parsed schema with which values are encoded."""
        if not self._register and self._latest:
            return registry.latest(subject)
        schema_id = registry.id_of(
            subject, text, register=self._register, normalize=self.config["normalize.schemas"]
        )
        return schema_id, parsed

    def _subject(self, topic: str, parsed: Any, field: pa.Field) -> str:
        if self._strategy == TOPIC_NAME:
            return f"{topic}-{'key' if self.is_key else 'value'}"
        schema = schema_of(field)
        name = self.record_name(parsed, schema) if schema is not None else None
        if name is None:
            raise RecordError(
                f"{self._strategy} names the subject after the record, and the value is none: use "
                "TopicNameStrategy"
            )
        return name if self._strategy == RECORD_NAME else f"{topic}-{name}"

    def _read(self, values: Any, mask: Any, known: Any) -> Sequence[Decoded]:
        everything = bool(mask.all())
        rows = None if everything else pa.array(np.flatnonzero(mask))
        part = values if rows is None else values.take(rows)
        with rows_at(rows):
            found = self.read(part, known)
        return [Decoded(_at(rows, each.rows), each.field, each.values) for each in found]

    def _ids(self, values: Any, tombstones: Any) -> tuple[Any, dict[int, RecordError]]:
        """The schema id of each record, and the errors of records without one.

        The id is -1 for tombstones and for records without an id.
        """
        lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0))
        starts = pc.binary_slice(values.fill_null(b""), 0, PREFIX_BYTES)
        is_whole = lengths >= PREFIX_BYTES
        ids = np.full(len(values), -1, np.int64)
        heads = np.frombuffer(
            b"".join(starts.filter(pa.array(is_whole)).to_pylist()), np.uint8
        ).reshape(-1, PREFIX_BYTES)
        found = np.ascontiguousarray(heads[:, 1:]).view(">u4").reshape(-1).astype(np.int64)
        ids[is_whole] = np.where(heads[:, 0] == _MAGIC, found, -1)
        error = RecordError(
            "the bytes do not begin with 0 and the id of a schema, as those of "
            f"{self.called} with a registry do"
        )
        return ids, dict.fromkeys(np.flatnonzero((ids < 0) & ~tombstones).tolist(), error)


def _at(rows: Any | None, inner: Any | None) -> Any | None:
    """Map row numbers within ``rows`` to row numbers of the batch; None means all rows."""
    if inner is None or rows is None:
        return rows if inner is None else inner
    return rows.take(inner)
