"""Which Java classes configs may name, and which of their settings for Kafka clients."""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from drover.errors import Violation
from drover.java_plugins.catalogue import Catalogue, installed
from drover.java_plugins.places import plugin_home, plugin_path
from drover.java_plugins.values import JavaClass, JavaPluginError, Kind
from drover.policy.client_settings import OverridePolicy

#: The environment variable of engines with the classes that configs may name.
ALLOWED_VARIABLE = "DROVER_JAVA_PLUGINS"
#: The environment variable of engines with the connectors that run as Java plugins although Drover
#: has them too.
PREFERRED_VARIABLE = "DROVER_JAVA_PREFERRED"
EVERY_CLASS, NO_CLASS = "*", ","
_PATTERN = re.compile(r"\*|[\w$]+(?:\.[\w$]+)*(?:\.?\*)?")

#: Settings of Kafka's clients that load a class, at the end of a setting's name. They run code that
#: the worker's administrator did not install as a plugin.
_CLASS_SETTINGS = (
    *("interceptor.classes", "metric.reporters", "partitioner.class", "security.providers"),
    *("sasl.client.callback.handler.class", "sasl.login.callback.handler.class"),
    *("sasl.login.class", "sasl.oauthbearer.jwt.retriever.class"),
    *("sasl.oauthbearer.jwt.validator.class", "ssl.engine.factory.class"),
)
_JAAS_SETTING = "sasl.jaas.config"
_SECURITY = "org.apache.kafka.common.security."
#: Login modules that authenticate with what the config has, and do nothing else.
_LOGIN_MODULES = frozenset(
    {
        f"{_SECURITY}plain.PlainLoginModule",
        f"{_SECURITY}scram.ScramLoginModule",
        f"{_SECURITY}oauthbearer.OAuthBearerLoginModule",
    }
)
_OF_PACKAGE = re.compile(r"[\w$]+(?:\.[\w$]+)+")
_OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")


def class_patterns(text: str) -> list[str]:
    """The patterns in a list separated by commas.

    Raises:
        ValueError: One is no name of a class, with ``*`` at its end or alone.
    """
    patterns = [each.strip() for each in text.split(",") if each.strip()]
    for each in patterns:
        if not _PATTERN.fullmatch(each):
            raise ValueError(
                f"{each!r} is not a class: use its full name, or the beginning of one with * at the"
                " end, such as io.debezium.*"
            )
    return patterns


def class_fault(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why a config may not name a Java class, as a clause; None if it may.

    Without the variable every class may be named: workers set it for their engines.
    """
    allowed = class_patterns(environ.get(ALLOWED_VARIABLE, EVERY_CLASS))
    if _matches(name, allowed):
        return None
    listed = f" ({', '.join(allowed)})" if allowed else ""
    return (
        f"the Java class {name} is not allowed: the worker's {ALLOWED_VARIABLE}{listed} does not"
        " include it; the worker's operator can add the class to it"
    )


def is_preferred(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a connector runs as a Java plugin although Drover has its full name too."""
    return _matches(name, class_patterns(environ.get(PREFERRED_VARIABLE, "")))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, each.replace("[", "[[]")) for each in patterns)


def worker_catalogue(environ: Mapping[str, str] = os.environ) -> Catalogue:
    """The Java plugins of this worker, whether allowed or not.

    Raises:
        JavaPluginError: The plugin home belongs to another user, or other users can write to it.
    """
    return installed(plugin_home(environ), plugin_path(environ))


def allowed_classes(environ: Mapping[str, str] = os.environ) -> list[JavaClass]:
    """The Java classes of this worker that configs may name; none if the plugin home cannot be
    used, which each config that names a class reports.
    """
    try:
        found = worker_catalogue(environ).classes
    except JavaPluginError:
        return []
    return [each for each in found if class_fault(each.name, environ) is None]


def find_class(
    name: str,
    kind: Kind | None = None,
    version: str = "",
    *,
    beside: str = "",
    environ: Mapping[str, str] = os.environ,
) -> JavaClass:
    """The class that a config names, if it may.

    Args:
        name: The full name, or the name without its package.
        kind: The wanted kind; None for any.
        version: The value of ``connector.plugin.version`` or a sibling; empty for the latest.
        beside: The plugin of the connector, which is preferred.
        environ: The environment of the engine.

    Raises:
        JavaPluginError: No plugin has it, several have, or the worker does not allow it.
    """
    found = worker_catalogue(environ).find(name, kind, version, beside=beside)
    fault = class_fault(found.name, environ)
    if fault is not None:
        raise JavaPluginError(fault)
    return found


def client_setting_violations(
    config: Mapping[str, str | None], policy: OverridePolicy
) -> list[Violation]:
    """The settings of a Java connector's Kafka clients that the worker's policy rejects.

    Such clients are opened by the plugin, with settings under any prefix: a login module or a class
    in one of them would run code on the worker (CVE-2023-25194).

    Args:
        config: The config of the connector.
        policy: The worker's ``DROVER_CLIENT_OVERRIDE_POLICY``. Under every policy, only the listed
            login modules may be named, and no class of a client.
    """
    found = []
    for name, text in config.items():
        if text is None:
            continue
        if policy is OverridePolicy.NONE and name.startswith(_OVERRIDES):
            fault: str | None = "overrides a client, which the worker's policy none rejects"
        elif _is_named(name, _JAAS_SETTING):
            fault = _jaas_fault(text)
        elif any(_is_named(name, each) for each in _CLASS_SETTINGS) and text.strip():
            fault = "names a class to load, which no policy allows: remove it"
        else:
            fault = None
        if fault is not None:
            found.append(Violation(name, fault))
    return found


def _is_named(name: str, setting: str) -> bool:
    return name == setting or name.endswith(f".{setting}")


def _jaas_fault(text: str) -> str | None:
    """Why a JAAS configuration may not be used; its options may be secret."""
    unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    modules = [each.split(None, 1)[0] for each in unquoted.split(";") if each.strip()]
    bad = [each for each in modules if each not in _LOGIN_MODULES]
    if not bad:
        return None
    named = [each for each in bad if _OF_PACKAGE.fullmatch(each)]
    what = f"names the login module {named[0]}" if named else "has no login module at its start"
    return f"{what}: only {', '.join(sorted(_LOGIN_MODULES))} may be used"
