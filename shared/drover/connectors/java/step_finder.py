"""Finds the Java classes that settings of converters, transforms and predicates name."""

import os
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

from drover.config.class_registry import VersionUnavailableError
from drover.connectors.java.chain import JAVA_PREFIX, java_name
from drover.connectors.java.steps import KAFKA, JavaStep, step_of
from drover.convert.registry import CONVERTERS
from drover.java_plugins.allowed import class_fault, worker_catalogue
from drover.java_plugins.catalogue import (
    JavaClass,
    JavaPluginError,
    JavaVersionError,
    Kind,
    only,
)
from drover.java_plugins.host import check_runnable
from drover.java_plugins.places import PATH_VARIABLE, REMOTE_VARIABLE, host_jars
from drover.java_plugins.scan import kinds_of_kafka
from drover.transform.registry import PREDICATES, TRANSFORMS

_KAFKAS_JARS = "connect-*.jar"
_REGISTRIES = (
    (CONVERTERS, (Kind.CONVERTER, Kind.HEADER_CONVERTER)),
    (TRANSFORMS, (Kind.TRANSFORM,)),
    (PREDICATES, (Kind.PREDICATE,)),
)


def use_java_steps(*, in_engine: bool) -> None:
    """Let configs of this process name Java converters, transforms and predicates.

    Args:
        in_engine: Whether the classes are for running connectors, whose configs were validated.
    """
    for registry, kinds in _REGISTRIES:
        registry.also_find(partial(find_step, kinds, in_engine=in_engine))


def use_no_java_steps() -> None:
    """Undo ``use_java_steps``."""
    for registry, _ in _REGISTRIES:
        registry.also_find(lambda _name, _version: None)


def find_step(
    kinds: Sequence[Kind],
    name: str,
    version: str,
    *,
    in_engine: bool,
    environ: Mapping[str, str] = os.environ,
) -> type[JavaStep] | None:
    """The Java class ``name`` of one of ``kinds``, the first preferred; None if no plugin has it.

    Raises:
        VersionUnavailableError: It is not installed in the version.
        ValueError: It cannot be used; the message has the reason and the remedy.
    """
    is_java = name.startswith(JAVA_PREFIX)
    wanted = java_name(name)
    try:
        found = _kafkas(kinds, wanted, version, environ) if is_java else None
        found = found or _installed(kinds, wanted, version, environ)
        if found is not None:
            _check_usable(found, environ)
    except JavaVersionError as error:
        raise VersionUnavailableError(str(error)) from None
    except JavaPluginError as error:
        raise ValueError(str(error)) from None
    if found is not None:
        return step_of(found, in_engine=in_engine)
    if not is_java:
        return None
    what = " or ".join(each.value.replace("_", " ") for each in kinds)
    raise ValueError(
        f"no installed Java plugin has the {what} {wanted}: install it with `drover plugin add`, "
        f"or add its folder to {PATH_VARIABLE}"
    )


def _installed(
    kinds: Sequence[Kind], name: str, version: str, environ: Mapping[str, str]
) -> JavaClass | None:
    catalogue = worker_catalogue(environ)
    known = {each.kind for each in catalogue.classes if name in (each.name, each.simple_name)}
    kind = next((each for each in kinds if each in known), None)
    return None if kind is None else catalogue.find(name, kind, version)


def _kafkas(
    kinds: Sequence[Kind], name: str, version: str, environ: Mapping[str, str]
) -> JavaClass | None:
    """Kafka's own class, which every host has."""
    kind = next((each for each in kinds if each in kinds_of_kafka(name)), None)
    jars = host_jars(environ)
    if kind is None or jars is None:
        return None
    release = _kafkas_classes(jars).get(name)
    if release is None:
        return None
    return only(name, [JavaClass(name, kind, release, KAFKA, jars)], version)


@lru_cache(maxsize=4)
def _kafkas_classes(jars: Path) -> Mapping[str, str]:
    """The names of Kafka's classes, each with the release of its jar."""
    found: dict[str, str] = {}
    for path in sorted(jars.glob(_KAFKAS_JARS)):
        release = path.stem.rpartition("-")[2]
        with zipfile.ZipFile(path) as archive:
            names = (each for each in archive.namelist() if each.endswith(".class"))
            found |= {each[: -len(".class")].replace("/", "."): release for each in names}
    return found


def _check_usable(java_class: JavaClass, environ: Mapping[str, str]) -> None:
    if java_class.plugin != KAFKA:
        fault = class_fault(java_class.name, environ)
        if fault is not None:
            raise JavaPluginError(fault)
    check_runnable(java_class.plugin, java_class.name, environ)
    master = environ.get(REMOTE_VARIABLE)
    if master:
        raise JavaPluginError(
            f"{java_class.name} runs in a JVM on the worker's machine, which Spark executors of "
            f"{master} cannot reach: use a class of Drover, a Java connector whose JVM runs the "
            "step, or a worker with the Spark master local[*]"
        )
