"""The registries of transforms and predicates."""

from collections.abc import Sequence

from drover.config.class_registry import ClassRegistry
from drover.transform.other_transforms import PREDICATES_ELSEWHERE, TRANSFORMS_ELSEWHERE
from drover.transform.transform import Predicate, Transform


def _transforms() -> Sequence[type[Transform]]:
    # imported lazily: a cluster without transforms does not need them
    from drover.transform.arrow_function import ArrowFunction
    from drover.transform.cast import CastKey, CastValue
    from drover.transform.extract_field import ExtractFieldKey, ExtractFieldValue
    from drover.transform.extract_new_record_state import ExtractNewRecordState
    from drover.transform.filter import Filter
    from drover.transform.flatten import FlattenKey, FlattenValue
    from drover.transform.header_transforms import (
        DropHeaders,
        HeaderFromKey,
        HeaderFromValue,
        InsertHeader,
    )
    from drover.transform.hoist_field import HoistFieldKey, HoistFieldValue
    from drover.transform.insert_field import InsertFieldKey, InsertFieldValue
    from drover.transform.mask_field import MaskFieldKey, MaskFieldValue
    from drover.transform.regex_router import RegexRouter
    from drover.transform.replace_field import ReplaceFieldKey, ReplaceFieldValue
    from drover.transform.set_schema_metadata import SetSchemaMetadataKey, SetSchemaMetadataValue
    from drover.transform.sql.transform import Sql
    from drover.transform.timestamp_converter import TimestampConverterKey, TimestampConverterValue
    from drover.transform.timestamp_router import TimestampRouter
    from drover.transform.value_to_key import ValueToKey

    return (
        ArrowFunction, CastKey, CastValue, DropHeaders, ExtractFieldKey, ExtractFieldValue,
        ExtractNewRecordState, Filter, FlattenKey, FlattenValue, HeaderFromKey, HeaderFromValue,
        HoistFieldKey, HoistFieldValue,
        InsertFieldKey, InsertFieldValue, InsertHeader, MaskFieldKey, MaskFieldValue, RegexRouter,
        ReplaceFieldKey, ReplaceFieldValue, SetSchemaMetadataKey, SetSchemaMetadataValue,
        Sql,
        TimestampConverterKey, TimestampConverterValue, TimestampRouter, ValueToKey,
    )  # fmt: skip


def _predicates() -> Sequence[type[Predicate]]:
    from drover.transform.field_matches import FieldMatches, FieldMatchesKey
    from drover.transform.predicates import HasHeaderKey, RecordIsTombstone
    from drover.transform.predicates_topic import TopicNameMatches

    return FieldMatches, FieldMatchesKey, HasHeaderKey, RecordIsTombstone, TopicNameMatches


TRANSFORMS: ClassRegistry[Transform] = ClassRegistry(
    "transform", "drover.transforms", _transforms, TRANSFORMS_ELSEWHERE
)
PREDICATES: ClassRegistry[Predicate] = ClassRegistry(
    "predicate", "drover.predicates", _predicates, PREDICATES_ELSEWHERE
)
