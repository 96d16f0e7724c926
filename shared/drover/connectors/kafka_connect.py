"""Names of Kafka Connect's FileStream connectors: the built-in ones stand in for them.

Under these names task configs are Kafka Connect's own: the connector's config and the name of the
task's class. So either of the two finds what it would have written itself, and goes on.
"""

from collections.abc import Mapping

FILE_STREAM_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_STREAM_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TASK_CLASS = "task.class"

_CONNECTOR_CLASS = "connector.class"
_TASK_CLASSES = {
    FILE_STREAM_SOURCE: "org.apache.kafka.connect.file.FileStreamSourceTask",
    FILE_STREAM_SINK: "org.apache.kafka.connect.file.FileStreamSinkTask",
}


def task_config(config_texts: Mapping[str, str]) -> dict[str, str] | None:
    """The config of the only task; None for a connector that goes by another name."""
    task_class = _TASK_CLASSES.get(config_texts.get(_CONNECTOR_CLASS, "").strip())
    return None if task_class is None else {**config_texts, TASK_CLASS: task_class}
