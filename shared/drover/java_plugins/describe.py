"""Asks classes of Java plugins for their version and settings, and lets them validate configs.

This runs code of the plugin, in a JVM that ends with the answer: without an environment, without
access to what this process holds, and limited in time, memory and output. The program in it is the
subcommand ``describe`` of the host of Java plugins.
"""

import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from drover.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Width,
)
from drover.config.recommender import Recommender
from drover.java_plugins.values import JavaPluginError

_MAIN_CLASS = "io.drover.host.Main"
_ERROR_OUTPUT_BYTES_MAX = 64 * 1024
_READ_BYTES = 64 * 1024
_CHECK_S = 0.5
#: The exit code of -XX:+ExitOnOutOfMemoryError.
_OUT_OF_MEMORY = 3
_CLASS_FILE_VERSION = "UnsupportedClassVersionError"
_FIRST_RELEASE = 44


@dataclass(frozen=True, slots=True)
class JavaHost:
    """The JVM that runs plugins' code, and its limits.

    Attributes:
        java: The program ``java``.
        jars: The folder with the jars of the host of Java plugins.
        limit_s: How long each call of a plugin may take: loading the class, its constructor,
            ``version()``, ``config()``, ``validate()``.
        start_limit_s: How long the JVM may take until the first call.
        memory_mib: The size of the heap.
        output_bytes_max: The size of an answer.
    """

    java: Path
    jars: Path
    limit_s: float = 30.0
    start_limit_s: float = 60.0
    memory_mib: int = 256
    output_bytes_max: int = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JavaSetting:
    """A setting of a Java class, as its ConfigDef defines it.

    Attributes:
        name: Its name.
        type: Its type in Kafka's ConfigDef, such as ``SHORT``.
        required: Whether it has no default.
        default: The default as configs write it; None if there is none. Passwords are masked.
        importance: ``HIGH``, ``MEDIUM`` or ``LOW``.
        documentation: Its documentation.
        group: Its group; empty for none.
        group_order: The place of the group among the groups, from 0.
        order: Its place in the group.
        width: The width of its input field.
        display_name: The name that user interfaces show.
        dependents: The settings whose recommended values depend on this one.
        recommended_values: The recommended values if nothing is set.
        valid: Its validator as text; empty for none.
    """

    name: str
    type: str
    required: bool
    default: str | None
    importance: str
    documentation: str
    group: str
    group_order: int
    order: int
    width: str
    display_name: str
    dependents: tuple[str, ...]
    recommended_values: tuple[str, ...]
    valid: str


@dataclass(frozen=True, slots=True)
class JavaValue:
    """What a Java class answers about one setting of a config.

    Attributes:
        name: The setting.
        value: Its value; None if it has none. Passwords are masked.
        errors: The errors, in the words of the plugin, which may quote the value.
        recommended_values: The recommended values with the other settings of the config.
        visible: Whether the setting has an effect with the other settings.
    """

    name: str
    value: str | None
    errors: tuple[str, ...]
    recommended_values: tuple[str, ...]
    visible: bool


@dataclass(frozen=True, slots=True)
class Description:
    """What a Java class declares.

    Attributes:
        class_name: The class.
        version: The version that it reports; empty for none.
        settings: Its settings in the order of its ConfigDef.
    """

    class_name: str
    version: str
    settings: tuple[JavaSetting, ...]


@dataclass(frozen=True, slots=True)
class Validated:
    """The answer of a Java class about a config.

    Attributes:
        description: What the class declares.
        values: Its answer for each setting.
        exactly_once_support: For a source, ``SUPPORTED`` or ``UNSUPPORTED``; None if it answers
            neither, or if the config has errors.
        transaction_boundaries: For a source, ``SUPPORTED`` or ``UNSUPPORTED``; None as above.
    """

    description: Description
    values: tuple[JavaValue, ...]
    exactly_once_support: str | None
    transaction_boundaries: str | None


def describe(
    host: JavaHost, path: Path, class_names: Sequence[str]
) -> dict[str, Description | JavaPluginError]:
    """What classes of one plugin declare, or why that is not known. Runs code of the plugin.

    A class that hangs or ends the JVM costs the limit and affects no other class: the classes
    after it are asked in another JVM.

    Args:
        host: The JVM and its limits.
        path: The plugin's folder of jars, or its jar.
        class_names: The full names of the classes.

    Returns:
        The result for each name.

    Raises:
        JavaPluginError: The JVM does not start.
    """
    found: dict[str, Description | JavaPluginError] = {}
    waiting = list(dict.fromkeys(class_names))
    while waiting:
        answers = _ask(host, {"path": str(path), "classes": waiting})
        for name in waiting:
            if name in answers:
                found[name] = _description_or_error(name, answers[name])
        remaining = [each for each in waiting if each not in answers]
        if len(remaining) == len(waiting):
            raise JavaPluginError(f"{host.java} did not answer about {waiting[0]}")
        waiting = remaining
    return found


@dataclass(frozen=True, slots=True)
class Configure:
    """That a converter, transform or predicate is also configured.

    Attributes:
        kind: Its kind, as the value of a Kind.
        is_key: Whether it is a converter of keys.
    """

    kind: str
    is_key: bool


def validate(
    host: JavaHost,
    path: Path | None,
    class_name: str,
    config: Mapping[str, str | None],
    configure: Configure | None = None,
) -> Validated:
    """Let a class validate a config, as Kafka Connect does. Runs code of the plugin.

    Args:
        host: The JVM and its limits.
        path: The plugin's folder of jars, or its jar; None for a class of Kafka.
        class_name: The full name of the class.
        config: The settings, without the prefix of a transform or converter. They may be secret:
            they are passed on standard input.
        configure: Also configure the class with valid settings, where its ``configure`` checks
            more than its definition of the settings.

    Raises:
        JavaPluginError: The class or its code failed; the message has the phase and the remedy.
    """
    request: dict[str, Any] = {
        "path": "" if path is None else str(path),
        "classes": [class_name],
        "config": dict(config),
    }
    if configure is not None:
        request["configure"] = {"kind": configure.kind, "is_key": configure.is_key}
    answer = _ask(host, request).get(class_name)
    if answer is None:
        raise JavaPluginError(f"{host.java} did not answer about {class_name}")
    description = _description_or_error(class_name, answer)
    if isinstance(description, JavaPluginError):
        raise description
    try:
        return Validated(
            description,
            tuple(
                JavaValue(
                    name=str(each["name"]),
                    value=each["value"],
                    errors=tuple(str(error) for error in each["errors"]),
                    recommended_values=tuple(map(str, each["recommended_values"])),
                    visible=bool(each["visible"]),
                )
                for each in answer["values"]
            ),
            answer.get("exactly_once_support"),
            answer.get("transaction_boundaries"),
        )
    except (KeyError, TypeError) as error:
        raise JavaPluginError(f"the answer about {class_name} is damaged: {error}") from error


def config_def(description: Description) -> ConfigDef:
    """The settings of a Java class as a ConfigDef of Drover.

    Settings have the order of Kafka's REST API: by group, then by place in the group. Texts are
    parsed at most as strictly as Kafka does; the class itself validates. A password's default is
    not shown. SHORT is INT, and a type of a later Kafka is STRING.
    """
    depends_on: dict[str, list[str]] = {}
    for each in description.settings:
        for name in each.dependents:
            depends_on.setdefault(name, []).append(each.name)
    ordered = sorted(description.settings, key=lambda each: (each.group_order, each.order))
    return ConfigDef(*(_config_key(each, tuple(depends_on.get(each.name, ()))) for each in ordered))


def to_document(description: Description) -> dict[str, Any]:
    """A description as JSON, in the form of the host's answers."""
    return {
        "class": description.class_name,
        "version": description.version,
        "settings": [
            {name: getattr(each, name) for name in JavaSetting.__slots__}
            for each in description.settings
        ],
    }


def from_document(document: Mapping[str, Any]) -> Description:
    """The description in JSON.

    Raises:
        KeyError, TypeError, ValueError: The JSON has another form.
    """
    return Description(
        class_name=str(document["class"]),
        version=str(document["version"] or ""),
        settings=tuple(
            JavaSetting(
                name=str(each["name"]),
                type=str(each["type"]),
                required=bool(each["required"]),
                default=None if each.get("default") is None else str(each["default"]),
                importance=str(each["importance"]),
                documentation=str(each["documentation"] or ""),
                group=str(each["group"] or ""),
                group_order=int(each["group_order"]),
                order=int(each["order"]),
                width=str(each["width"]),
                display_name=str(each["display_name"] or ""),
                dependents=tuple(map(str, each["dependents"])),
                recommended_values=tuple(map(str, each["recommended_values"])),
                valid=str(each.get("valid") or ""),
            )
            for each in document["settings"]
        ),
    )


_TYPES = {each.value: each for each in ConfigType} | {"SHORT": ConfigType.INT}


def _config_key(setting: JavaSetting, depends_on: tuple[str, ...]) -> ConfigKey:
    recommended = setting.recommended_values
    recommender = None
    if recommended or depends_on:
        recommender = Recommender(depends_on=depends_on, values=lambda _: recommended)
    valid = f" Valid values: {setting.valid}." if setting.valid else ""
    return ConfigKey(
        name=setting.name,
        type=_TYPES.get(setting.type, ConfigType.STRING),
        default=_default(setting),
        importance=Importance(setting.importance),
        documentation=setting.documentation + valid,
        group=setting.group or "Connector",
        recommender=recommender,
        display_name=setting.display_name,
        width=Width(setting.width) if setting.width in Width.__members__ else Width.NONE,
    )


def _default(setting: JavaSetting) -> Any:
    if setting.required:
        return REQUIRED
    kind = _TYPES.get(setting.type, ConfigType.STRING)
    if setting.default is None or kind is ConfigType.PASSWORD:
        return None
    if kind is ConfigType.STRING:
        return setting.default  # white space may be data, such as a delimiter
    try:
        return ConfigKey(setting.name, kind).parse(setting.default)
    except ValueError:  # such as Java's Infinity
        return setting.default


def _description_or_error(name: str, answer: Mapping[str, Any]) -> Description | JavaPluginError:
    error = answer.get("error")
    if error is not None:
        return JavaPluginError(_failure(name, error))
    try:
        return from_document(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        return JavaPluginError(f"the answer about {name} is damaged: {type(fault).__name__}")


def _failure(name: str, error: Mapping[str, Any]) -> str:
    phase, kind = error.get("phase", ""), str(error.get("type", ""))
    message = str(error.get("message") or "")
    missing = error.get("missing_class")
    if missing:
        return (
            f"{name} needs the class {missing}, which is in none of the plugin's jars (found in"
            f" {phase}): add the jar with this class to the plugin, and install it again"
        )
    if kind.endswith(_CLASS_FILE_VERSION):
        needed = _needed_java(message)
        java = f"Java {needed} or newer" if needed else "a newer Java"
        return f"{name} needs {java}: {message}"
    reason = ": ".join(each for each in (kind.rpartition(".")[2], message) if each)
    return f"{name} failed in {phase}: {reason}"


def _needed_java(message: str) -> int | None:
    """The Java release in "… compiled by a more recent version … (class file version 65.0)"."""
    for word in message.replace("(", " ").replace(")", " ").replace(",", " ").split():
        if word.endswith(".0") and word[:-2].isdigit():
            return int(word[:-2]) - _FIRST_RELEASE
    return None


def _ask(host: JavaHost, request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The answers by class; of a class that ended the JVM or exceeded the limit, an error."""
    token = secrets.token_hex(16) + " "
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="drover-describe-"))
            # a file without a name: a JVM that does not read it blocks nothing
            question = stack.enter_context(tempfile.TemporaryFile())
            question.write(json.dumps({**request, "token": token}).encode())
            question.seek(0)
        except OSError as error:
            raise JavaPluginError(unwritable_temporary_files(error)) from error
        with question:
            try:
                process = subprocess.Popen(
                    _command(host, Path(folder)),
                    stdin=question,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=folder,
                    env={"LANG": "C.UTF-8"},
                    start_new_session=True,
                )
            except OSError as error:
                raise JavaPluginError(f"{host.java} does not start: {error}") from error
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            output = _Reader(process.stdout, host.output_bytes_max, lambda: _kill(process))
            errors = _Reader(process.stderr, _ERROR_OUTPUT_BYTES_MAX)
            late = not _has_ended(host, process, lambda: output.count(token))
            _kill(process)  # and its children, which would hold the pipes
            output.join()
            errors.join()
    return _answers(host, token, output, errors, process.returncode, late=late)


def unwritable_temporary_files(error: OSError) -> str:
    """The message for a folder for temporary files in which a JVM's files cannot be written."""
    return (
        f"the folder for temporary files {tempfile.gettempdir()} cannot be used "
        f"({error.strerror or error}): free space there, or set TMPDIR to another folder"
    )


def _command(host: JavaHost, folder: Path) -> list[str]:
    return [
        str(host.java),
        f"-Xmx{host.memory_mib}m",
        f"-XX:MaxDirectMemorySize={host.memory_mib}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
        f"-Djava.io.tmpdir={folder}",
        f"-Duser.home={folder}",
        *("-cp", str(host.jars / "*"), _MAIN_CLASS, "describe", str(os.getpid())),
    ]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _has_ended(
    host: JavaHost, process: "subprocess.Popen[bytes]", answer_count: Callable[[], int]
) -> bool:
    """Wait for the end of the process, or until a call exceeds its limit."""
    limit_s, count = host.start_limit_s, 0
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            process.wait(min(_CHECK_S, limit_s))
            return True
        except subprocess.TimeoutExpired:
            now_s = time.monotonic()
        if answer_count() > count:
            limit_s, count = host.limit_s, answer_count()
            deadline_s = now_s + limit_s
        elif now_s >= deadline_s:
            return False


class _Reader:
    """Reads a pipe to its end in a thread, and keeps at most a number of bytes."""

    def __init__(
        self, stream: IO[bytes], size_bytes_max: int, on_excess: Callable[[], None] | None = None
    ) -> None:
        self._stream, self._size_bytes_max, self._on_excess = stream, size_bytes_max, on_excess
        self._kept = bytearray()
        self.exceeded = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def count(self, token: str) -> int:
        """How often the token is in what was read."""
        return self._kept.count(token.encode())

    def join(self) -> None:
        self._thread.join()

    def _read(self) -> None:
        while chunk := os.read(self._stream.fileno(), _READ_BYTES):
            if len(self._kept) + len(chunk) <= self._size_bytes_max:
                self._kept += chunk
            elif not self.exceeded:
                self.exceeded = True
                if self._on_excess is not None:
                    self._on_excess()


def _answers(
    host: JavaHost, token: str, output: _Reader, errors: _Reader, code: int, *, late: bool
) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    at: dict[str, Any] | None = None
    for line in output.text.split("\n"):
        if not line.startswith(token):
            continue
        try:
            answer = json.loads(line[len(token) :])
        except ValueError:
            continue
        if "phase" in answer:
            at = answer
        else:
            answers[answer["class"]] = answer
            at = None
    if at is None:
        if not answers:
            raise JavaPluginError(_no_answer(host, errors.text, code, late=late))
        return answers
    phase = at["phase"]
    if output.exceeded:
        reason = f"its answer is larger than {host.output_bytes_max} bytes"
    elif late:
        reason = f"it did not return within {host.limit_s:g} s"
    elif code == _OUT_OF_MEMORY:
        reason = f"it needs more than {host.memory_mib} MiB of memory, or ended its process"
    else:
        reason = f"it ended its process (exit code {code})"
    answers[at["class"]] = {"error": {"phase": phase, "type": "", "message": reason}}
    return answers


def _no_answer(host: JavaHost, errors: str, code: int, *, late: bool) -> str:
    if late:
        return f"{host.java} did not start within {host.start_limit_s:g} s"
    lines = [each for each in errors.splitlines() if each.strip()]
    reason = f": {lines[0][:300]}" if lines else ""
    return f"{host.java} ended with exit code {code}{reason}"
