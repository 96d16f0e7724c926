"""The settings that Drover adds to a Java plugin's own settings."""

import json
from collections.abc import Mapping

from drover.connector import ConfigDef, ConfigKey, ConfigType, InRange
from drover.connector.settings import CONFIG_TEXTS

CALL_TIMEOUT_MS = "java.call.timeout.ms"
POLL_TIMEOUT_MS = "java.poll.timeout.ms"
PLUGIN_VERSION = "connector.plugin.version"
PREVIEW = "java.preview"
#: In the config of a task: the settings of the connector that the task does not receive, as JSON.
TASK_LACKS = "java.task.lacks"
#: In the config of a task, as in Kafka Connect: the class that the started connector chose for it.
TASK_CLASS = "task.class"

JAVA_SETTINGS = ConfigDef(
    ConfigKey(
        CALL_TIMEOUT_MS,
        ConfigType.LONG,
        default=300_000,
        group="Java",
        documentation="How many milliseconds put(), preCommit() and other methods of a running "
        "task may take. After that the task is FAILED, with the method and the place of its "
        "thread. 0 means no limit.",
        validator=InRange(0, 2**31 - 1),
    ),
    ConfigKey(
        POLL_TIMEOUT_MS,
        ConfigType.LONG,
        default=0,
        group="Java",
        documentation="As java.call.timeout.ms, for poll() of a source. By default there is no "
        "limit, because a poll() may wait until there is data.",
        validator=InRange(0, 2**31 - 1),
    ),
    ConfigKey(
        PLUGIN_VERSION,
        ConfigType.STRING,
        default=None,
        group="Java",
        documentation="The version of the plugin, where several are installed: one version, or a "
        "range as in [1.0,2.0) (KIP-891). By default the latest one.",
    ),
)

SOURCE_SETTINGS = ConfigDef(
    ConfigKey(
        PREVIEW,
        ConfigType.BOOLEAN,
        default=False,
        group="Java",
        documentation="Whether previews may poll the plugin. Its poll() may change the system that "
        "it reads: it may acknowledge records, create a replication slot, or take the place of "
        "a running connector.",
    ),
)

__all__ = [
    "CALL_TIMEOUT_MS",
    "CONFIG_TEXTS",
    "JAVA_SETTINGS",
    "PLUGIN_VERSION",
    "POLL_TIMEOUT_MS",
    "PREVIEW",
    "SOURCE_SETTINGS",
    "TASK_CLASS",
    "TASK_LACKS",
    "task_changes",
    "task_texts",
]


def task_changes(given: Mapping[str, str], own: Mapping[str, str | None]) -> dict[str, str]:
    """How a task's config, as the plugin returned it, differs from the connector's.

    A setting that is null counts as missing.
    """
    texts = {name: text for name, text in own.items() if text is not None}
    changes = {name: text for name, text in texts.items() if given.get(name) != text}
    lacking = sorted(given.keys() - texts.keys())
    return {**changes, TASK_LACKS: json.dumps(lacking)} if lacking else changes


def task_texts(merged: Mapping[str, str]) -> dict[str, str]:
    """The task's config: the connector's with the changes of ``task_changes``."""
    lacking = frozenset(json.loads(merged.get(TASK_LACKS, "[]")))
    return {name: text for name, text in merged.items() if name not in {*lacking, TASK_LACKS}}
