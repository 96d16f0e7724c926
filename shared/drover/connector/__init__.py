"""The API for connector authors.

For a connector of a few lines, use the decorators of ``generators``. For the full API, start with
the modules ``source`` or ``sink``, then ``config_def``. ``drover.connector.records`` defines the
columns of records as Arrow batches.
"""

from drover.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    ParsedConfig,
    Password,
    Width,
)
from drover.config.patterns import (
    Pattern,
    PatternTimeoutError,
    any_matches,
    compiled_pattern,
    pattern_fault,
    patterns_fault,
    whole_matcher,
)
from drover.config.plugin_modules import load_plugin, plugin_fault
from drover.config.recommender import Recommender, visible_when, visible_with
from drover.config.validators import All, Check, InRange, Matches, NonEmpty, OneOf, Validator
from drover.connector.connector import (
    ONCE,
    REPEATED,
    REPLAYED,
    Connector,
    ConnectorContext,
    Guarantee,
    Guarantees,
)
from drover.connector.database_failures import DatabaseFailure, database_failure
from drover.connector.error_settings import TOLERANCE
from drover.connector.generators import GeneratorError, sink, source
from drover.connector.offset_forms import ForeignOffsetsError, OffsetForm
from drover.connector.offsets import OffsetChange, SinkOffset
from drover.connector.other_settings import OtherSettings
from drover.connector.plain_rows import PlainRowsError
from drover.connector.routed_topics import routed_topics
from drover.connector.settings import TOPIC_NAME
from drover.connector.sink import (
    OffsetRange,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
)
from drover.connector.sink_control import PredictedWrite, Written
from drover.connector.sink_records import SinkRecord
from drover.connector.source import SourceBatch, SourceConnector, SourceTask, SourceTaskContext
from drover.connector.task import SnapshotProgress, StaleClaimError, TaskContext
from drover.connector.value_forms import fieldless_converter, is_schemaless_json
from drover.dataplane.arrow_rows import ArrowRows, balanced_groups, current_spark_partition
from drover.dataplane.shared_jobs import core_count
from drover.dataplane.topic_creation import TopicRule
from drover.errors import Caution, SkippedCheck, Violation
from drover.model.ids import TaskId, Term
from drover.model.offsets import TopicPartition
from drover.pipeline.overwrites import OverwriteKey
from drover.record.errors import CredentialsRejectedError, RetriableError

__all__ = [
    "ONCE",
    "REPEATED",
    "REPLAYED",
    "REQUIRED",
    "TOLERANCE",
    "TOPIC_NAME",
    "All",
    "ArrowRows",
    "Caution",
    "Check",
    "ConfigDef",
    "ConfigKey",
    "ConfigType",
    "ConfigValue",
    "Connector",
    "ConnectorContext",
    "CredentialsRejectedError",
    "DatabaseFailure",
    "ForeignOffsetsError",
    "GeneratorError",
    "Guarantee",
    "Guarantees",
    "Importance",
    "InRange",
    "Matches",
    "NonEmpty",
    "OffsetChange",
    "OffsetForm",
    "OffsetRange",
    "OneOf",
    "OtherSettings",
    "OverwriteKey",
    "ParsedConfig",
    "Password",
    "Pattern",
    "PatternTimeoutError",
    "PlainRowsError",
    "PredictedWrite",
    "Recommender",
    "RetriableError",
    "SinkBatch",
    "SinkConnector",
    "SinkOffset",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SkippedCheck",
    "SnapshotProgress",
    "SourceBatch",
    "SourceConnector",
    "SourceTask",
    "SourceTaskContext",
    "StaleClaimError",
    "TaskContext",
    "TaskId",
    "Term",
    "TopicPartition",
    "TopicRule",
    "Validator",
    "Violation",
    "Width",
    "Written",
    "any_matches",
    "balanced_groups",
    "compiled_pattern",
    "core_count",
    "current_spark_partition",
    "database_failure",
    "fieldless_converter",
    "is_schemaless_json",
    "load_plugin",
    "pattern_fault",
    "patterns_fault",
    "plugin_fault",
    "routed_topics",
    "sink",
    "source",
    "visible_when",
    "visible_with",
    "whole_matcher",
]
