"""What a connector's config says of trying again what failed."""

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

_DEFAULT = RestartPolicy()
_DAY_MS = 86_400_000
_GROUP = "Restarts"

CONFIG_ACTION_RELOAD = "config.action.reload"
RESTART, NONE = "restart", "none"

RESTART_SETTINGS = ConfigDef(
    ConfigKey(
        CONFIG_ACTION_RELOAD,
        ConfigType.STRING,
        default=RESTART,
        group=_GROUP,
        documentation="What happens when a value that a config provider gave holds no longer.",
        validator=OneOf(NONE, RESTART),
    ),
    ConfigKey(
        RESTART_POLICY,
        ConfigType.STRING,
        default=ON_FAILURE,
        group=_GROUP,
        documentation="Whether the connector and its tasks are tried again by themselves after "
        "they failed. What failed because an engine or Spark ended always is.",
        validator=OneOf(NEVER, ON_FAILURE),
    ),
    ConfigKey(
        RESTART_BACKOFF_MS,
        ConfigType.LONG,
        default=_DEFAULT.backoff_ms,
        group=_GROUP,
        documentation="The pause before the first restart; it doubles with each further failure, "
        "and is spread by a fifth.",
        validator=InRange(1, _DAY_MS),
    ),
    ConfigKey(
        RESTART_BACKOFF_MAX_MS,
        ConfigType.LONG,
        default=_DEFAULT.backoff_max_ms,
        group=_GROUP,
        documentation="The longest pause before a restart.",
        validator=InRange(1, _DAY_MS),
    ),
    ConfigKey(
        RESTART_ATTEMPTS_MAX,
        ConfigType.INT,
        default=_DEFAULT.attempts_max,
        group=_GROUP,
        documentation="After so many restarts within restart.window.ms the next failure is for "
        "good, until somebody restarts it; -1 for no limit.",
        validator=InRange(-1, ATTEMPTS_LIMIT),
    ),
    ConfigKey(
        RESTART_WINDOW_MS,
        ConfigType.LONG,
        default=_DEFAULT.window_ms,
        group=_GROUP,
        documentation="How long a failure counts.",
        validator=InRange(1_000, 30 * _DAY_MS),
    ),
)
