"""The settings for automatic restarts of failed connectors and tasks."""

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import InRange, OneOf
from drover.model.failures import (
    ATTEMPTS_LIMIT,
    NEVER,
    ON_FAILURE,
    RESTART_ATTEMPTS_MAX,
    RESTART_BACKOFF_MAX_MS,
    RESTART_BACKOFF_MS,
    RESTART_POLICY,
    RESTART_WINDOW_MS,
    RestartPolicy,
)
from drover.model.times import DAY_MS

_DEFAULT = RestartPolicy()
_GROUP = "Restarts"

CONFIG_ACTION_RELOAD = "config.action.reload"
RESTART, NONE = "restart", "none"

RESTART_SETTINGS = ConfigDef(
    ConfigKey(
        CONFIG_ACTION_RELOAD,
        ConfigType.STRING,
        default=RESTART,
        group=_GROUP,
        documentation="What happens when a value from a config provider expires: the connector or "
        "task restarts (restart), or continues (none).",
        validator=OneOf(NONE, RESTART),
    ),
    ConfigKey(
        RESTART_POLICY,
        ConfigType.STRING,
        default=ON_FAILURE,
        group=_GROUP,
        documentation="Whether the connector and its tasks restart automatically after a failure. "
        "After the end of an engine they always restart.",
        validator=OneOf(NEVER, ON_FAILURE),
    ),
    ConfigKey(
        RESTART_BACKOFF_MS,
        ConfigType.LONG,
        default=_DEFAULT.backoff_ms,
        group=_GROUP,
        documentation="The back-off before the first restart; it doubles with each further "
        "failure, with a jitter of 20 %.",
        validator=InRange(1, DAY_MS),
    ),
    ConfigKey(
        RESTART_BACKOFF_MAX_MS,
        ConfigType.LONG,
        default=_DEFAULT.backoff_max_ms,
        group=_GROUP,
        documentation="The maximum back-off before a restart.",
        validator=InRange(1, DAY_MS),
    ),
    ConfigKey(
        RESTART_ATTEMPTS_MAX,
        ConfigType.INT,
        default=_DEFAULT.attempts_max,
        group=_GROUP,
        documentation="The maximum number of automatic restarts within restart.window.ms. After "
        "the next failure a user has to restart the connector or task. -1 for no limit.",
        validator=InRange(-1, ATTEMPTS_LIMIT),
    ),
    ConfigKey(
        RESTART_WINDOW_MS,
        ConfigType.LONG,
        default=_DEFAULT.window_ms,
        group=_GROUP,
        documentation="How long a failure counts towards restart.attempts.max.",
        validator=InRange(1_000, 30 * DAY_MS),
    ),
)
