"""Well-known transforms and predicates of other products, and what does their job here."""

from drover.config.other_classes import OtherClasses

_BY_FIELD = "Filter with the predicate FieldMatches"

TRANSFORMS_ELSEWHERE = (
    OtherClasses(
        ("EventRouter", "MongoEventRouter"),
        "routes the events of an outbox table",
        "Sql, whose query can set topic, key and value",
    ),
    OtherClasses(
        ("ByLogicalTableRouter", "TopicRegexRouter"),
        "renames topics",
        "RegexRouter, which renames topics by a pattern and leaves the key as it is",
    ),
    OtherClasses(
        ("ContentBasedRouter", "ExtractTopic", "ExtractTopicFromValueSchema", "FieldRouter"),
        "chooses topics by content",
        "Sql, whose query can set the topic",
    ),
    OtherClasses(
        ("Filter", "FilterByFieldValue", "PatternFilter", "FilterRecord"), "filters", _BY_FIELD
    ),
    OtherClasses(
        ("TombstoneHandler", "DropTombstones"),
        "drops tombstones",
        "Filter with the predicate RecordIsTombstone",
    ),
    OtherClasses(("UnwrapFromEnvelope",), "", "ExtractNewRecordState, its later name in Debezium"),
    OtherClasses(("ExtractNestedField",), "", "ExtractField with field.syntax.version=V2"),
    OtherClasses(("TopicNameToField",), "", "InsertField$Value with topic.field"),
    OtherClasses(
        ("KafkaMetadataTransform",),
        "",
        "InsertField$Value with topic.field, offset.field and so on",
    ),
    OtherClasses(("CopyValue", "ConcatFields"), "", "Sql, whose query can compute fields"),
    OtherClasses(("ExtractTimestamp",), "", "Sql, whose query can set the timestamp"),
    OtherClasses(
        ("ChangeCase", "ChangeTopicCase", "PatternRename", "CaseTransform"),
        "changes names by a rule",
        "Sql, whose query can rename fields and the topic",
    ),
    OtherClasses(
        ("ExtractNewDocumentState", "MongoDebeziumTransform"), "reads change events of MongoDB"
    ),
    OtherClasses(
        ("DebeziumTransform", "DmsTransform"), "", "ExtractNewRecordState with add.fields"
    ),
    OtherClasses(("JsonToMapTransform", "FromJson", "ExpandJson"), "parses JSON in a field"),
    OtherClasses(("ToJSON", "RecordToJson"), "", "Sql with the function to_json"),
    OtherClasses(("HeaderToValue", "HeaderToField"), "", "Sql, whose query can read headers"),
    OtherClasses(("PartitionRouting",), "chooses partitions by fields"),
    OtherClasses(("TimezoneConverter",), "converts time zones"),
    OtherClasses(("ExtractChangedRecordState",), "lists the changed fields of a change event"),
    OtherClasses(("SchemaChangeEventFilter",), "filters schema changes of databases"),
    OtherClasses(("DecodeLogicalDecodingMessageContent",), "decodes logical decoding messages"),
    OtherClasses(("ActivateTracingSpan",), "writes traces"),
    OtherClasses(("BytesToString", "GzipDecompress", "FromXml"), "decodes such fields"),
    OtherClasses(("Drop",), "", "ReplaceField with exclude, or Filter", "io.confluent."),
)

PREDICATES_ELSEWHERE = (
    OtherClasses(("IsTombstone", "RecordIsNull", "ValueIsNull"), "", "RecordIsTombstone"),
    OtherClasses(
        ("FieldEquals", "HasFieldValue", "FieldValueMatches", "HeaderValueMatches"),
        "",
        "FieldMatches",
    ),
    OtherClasses(("TopicMatches", "TopicIs"), "", "TopicNameMatches"),
)
