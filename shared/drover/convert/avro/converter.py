"""AvroConverter: records of Avro whose schemas are in a registry."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.convert.avro.avro_schemas import avro_text
from drover.convert.avro.decode import decode_records
from drover.convert.avro.encode import encode_records
from drover.convert.avro.registry import Access, Known, Registry, registry_at
from drover.convert.avro.schemas import AvroSchema, branch_name, kind_of, parse_avro
from drover.convert.avro.settings import AVRO_SETTINGS, RECORD_NAME, TOPIC_NAME, access_of
from drover.convert.converter import Converter, Decoded
from drover.record.errors import RecordError, RowsError, rows_at
from drover.record.schema import arrow_field, schema_of

_MAGIC = 0
#: The magic byte and the id of the schema.
_PREFIX_BYTES = 5


class AvroConverter(Converter):
    """Avro behind the id of its schema in a registry, as Confluent's converter writes it."""

    version = "1"
    aliases = ("Avro", "io.confluent.connect.avro.AvroConverter")

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        side = "key" if is_key else "value"
        self._access: Access = access_of(config)
        self._strategy: str = config[f"{side}.subject.name.strategy"].rpartition(".")[2]
        self._register: bool = config["auto.register.schemas"]
        self._latest: bool = config["use.latest.version"]

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Converter."""
        return AVRO_SETTINGS

    def encode(self, field: pa.Field, values: Any, topics: Any) -> Any:
        """See Converter. A null with an optional schema is Avro's null.

        Raises:
            RowsError: records of some topics cannot be written with what the registry has for them.
            RetriableError: the registry cannot be reached.
            PassError: it does not let us in.
        """
        schema = schema_of(field)
        if schema is None:
            raise RecordError("AvroConverter writes values with a schema, and these have none")
        if topics is None:
            raise RecordError("AvroConverter is for keys and values, not for headers")
        text = avro_text(
            schema,
            enums=self.config["enhanced.avro.schema.support"],
            meta_data=self.config["connect.meta.data"],
        )
        avro = parse_avro(text)
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist() if len(encoded) else []
        if len(names) == 1 and not topics.null_count:
            return self._encode(names[0], field, values, text, avro)
        return self._encode_apart(names, encoded.indices, field, values, text, avro)

    def decode(self, values: Any, topics: Any) -> Sequence[Decoded]:
        """See Converter. Null bytes are a null without a schema.

        Raises:
            RowsError: records that are none of Avro's, or whose schema the registry does not know.
            RetriableError: the registry cannot be reached.
            PassError: it does not let us in.
        """
        registry = registry_at(self._access)
        tombstones = np.asarray(values.is_null())
        ids, bad = _ids(values, tombstones)
        known: dict[int, Known] = {}
        for schema_id in np.unique(ids[ids >= 0]).tolist():
            try:
                known[schema_id] = registry.schema_of_id(schema_id)
            except RecordError as error:
                bad |= dict.fromkeys(np.flatnonzero(ids == schema_id).tolist(), error)
        if bad:
            raise RowsError(bad)
        found = [_decoded(values, ids == schema_id, each) for schema_id, each in known.items()]
        if tombstones.any():
            rows = pa.array(np.flatnonzero(tombstones))
            found.append(
                Decoded(rows, arrow_field("value", None), pa.nulls(len(rows), pa.string()))
            )
        return found

    def _encode_apart(
        self, names: list[str], indices: Any, field: pa.Field, values: Any, text: str,
        avro: AvroSchema,
    ) -> Any:  # fmt: skip
        """Topic by topic; what is wrong with one is told of all its records."""
        owners = np.asarray(indices.fill_null(-1))
        parts, rows = [], []
        bad: dict[int, RecordError] = {}
        for number in np.unique(owners).tolist():
            here = np.flatnonzero(owners == number)
            try:
                if number < 0:
                    raise RecordError("the record has no topic, which its subject is called after")
                part = values.take(pa.array(here))
                parts.append(self._encode(names[number], field, part, text, avro))
                rows.append(here)
            except RecordError as error:
                bad |= dict.fromkeys(here.tolist(), error)
        if bad:
            raise RowsError(bad)
        if not parts:
            return pa.array([], pa.binary())
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))

    def _encode(self, topic: str, field: pa.Field, values: Any, text: str, avro: AvroSchema) -> Any:
        registry = registry_at(self._access)
        strict = True
        try:
            schema_id, avro = self._target(registry, self._subject(topic, avro), text, avro)
            strict = self.config["latest.compatibility.strict"]
        except RecordError as error:
            raise RowsError(dict.fromkeys(range(len(values)), error)) from None
        return encode_records(
            field,
            values,
            avro,
            before=bytes([_MAGIC]) + schema_id.to_bytes(4, "big"),
            strict=strict,
            defaults=not self.config["ignore.default.for.nullables"],
        )

    def _target(
        self, registry: Registry, subject: str, text: str, avro: AvroSchema
    ) -> tuple[int, AvroSchema]:
        """The id and schema that values of ``avro`` are written with."""
        if not self._register and self._latest:
            return registry.latest(subject)
        schema_id = registry.id_of(
            subject, text, register=self._register, normalize=self.config["normalize.schemas"]
        )
        return schema_id, avro

    def _subject(self, topic: str, avro: AvroSchema) -> str:
        if self._strategy == TOPIC_NAME:
            return f"{topic}-{'key' if self.is_key else 'value'}"
        root = avro.resolved(avro.root)
        if kind_of(root) == "union":
            root = next(
                (node for each in root if kind_of(node := avro.resolved(each)) != "null"), root
            )
        if kind_of(root) != "record":
            raise RecordError(
                f"{self._strategy} names the subject after the record, and a value of type "
                f"{branch_name(root)} is none: use TopicNameStrategy"
            )
        return str(root["name"]) if self._strategy == RECORD_NAME else f"{topic}-{root['name']}"


def _ids(values: Any, tombstones: Any) -> tuple[Any, dict[int, RecordError]]:
    """The schema's id of each record, -1 for tombstones and for records that have none."""
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0))
    starts = pc.binary_slice(values.fill_null(b""), 0, _PREFIX_BYTES)
    is_whole = lengths >= _PREFIX_BYTES
    ids = np.full(len(values), -1, np.int64)
    heads = np.frombuffer(
        b"".join(starts.filter(pa.array(is_whole)).to_pylist()), np.uint8
    ).reshape(-1, _PREFIX_BYTES)
    found = np.ascontiguousarray(heads[:, 1:]).view(">u4").reshape(-1).astype(np.int64)
    ids[is_whole] = np.where(heads[:, 0] == _MAGIC, found, -1)
    error = RecordError(
        "the bytes do not begin with 0 and the id of a schema, as those of Avro with a registry do"
    )
    return ids, dict.fromkeys(np.flatnonzero((ids < 0) & ~tombstones).tolist(), error)


def _decoded(values: Any, mask: Any, known: Known) -> Decoded:
    everything = bool(mask.all())
    rows = None if everything else pa.array(np.flatnonzero(mask))
    part = values if rows is None else values.take(rows)
    with rows_at(rows):
        column = decode_records(part, known.avro, known.schema, skipped_bytes=_PREFIX_BYTES)
    return Decoded(rows, arrow_field("value", known.schema), column)
