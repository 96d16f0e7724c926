"""Finds the classes of a plugin by reading its class files, without running them.

A class is a connector, converter, header converter, transform or predicate if it extends one of
Kafka Connect's types, directly or through other classes of the plugin, and if Kafka Connect could
create it. As in Kafka Connect, classes that a plugin's loader takes from Kafka are not the
plugin's, even if one of its jars has them.
"""

import hashlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from drover.java_plugins.archives import (
    LIMITS,
    ArchiveError,
    ArchiveLimits,
    opened_zip,
    read_entry,
)
from drover.java_plugins.class_files import ClassFile, ClassFileError, read_class
from drover.java_plugins.values import Jar, JavaClass, Kind, Plugin

_CONNECT = "org.apache.kafka.connect."
#: Kafka Connect's types, and its classes that plugins extend.
_KINDS: Mapping[str, tuple[Kind, ...]] = {
    f"{_CONNECT}source.SourceConnector": (Kind.SOURCE,),
    f"{_CONNECT}sink.SinkConnector": (Kind.SINK,),
    f"{_CONNECT}storage.Converter": (Kind.CONVERTER,),
    f"{_CONNECT}storage.HeaderConverter": (Kind.HEADER_CONVERTER,),
    f"{_CONNECT}storage.StringConverter": (Kind.CONVERTER, Kind.HEADER_CONVERTER),
    f"{_CONNECT}storage.SimpleHeaderConverter": (Kind.HEADER_CONVERTER,),
    f"{_CONNECT}json.JsonConverter": (Kind.CONVERTER, Kind.HEADER_CONVERTER),
    f"{_CONNECT}transforms.Transformation": (Kind.TRANSFORM,),
    f"{_CONNECT}transforms.predicates.Predicate": (Kind.PREDICATE,),
}
#: Packages of Kafka whose classes implement these types.
_KINDS_BY_PACKAGE: Mapping[str, tuple[Kind, ...]] = {
    f"{_CONNECT}converters.": (Kind.CONVERTER, Kind.HEADER_CONVERTER),
    f"{_CONNECT}transforms.predicates.": (Kind.PREDICATE,),
    f"{_CONNECT}transforms.": (Kind.TRANSFORM,),
}
#: Classes that a plugin's loader takes from its parent (PluginUtils.shouldLoadInIsolation).
_FROM_PARENT = re.compile(
    r"(?:java|javax\.(?:net|security|sql|xml)|org\.apache\.kafka|org\.slf4j)\."
)
_KAFKA_PARTS = re.compile(
    r"org\.apache\.kafka\.connect\.(?:transforms\.(?!Transformation$|predicates\.Predicate$)"
    r"|json\.|file\.|mirror\.|converters\.|storage\.(?:StringConverter|SimpleHeaderConverter)$)"
)
#: Clients of Kafka; a class that uses one connects to brokers.
_KAFKA_CLIENTS = frozenset(
    f"org.apache.kafka.{each}"
    for each in (
        "clients.producer.KafkaProducer",
        "clients.consumer.KafkaConsumer",
        "clients.admin.Admin",
        "clients.admin.AdminClient",
        "clients.admin.KafkaAdminClient",
        "connect.util.KafkaBasedLog",
        "connect.util.SharedTopicAdmin",
        "connect.util.TopicAdmin",
    )
)
_MULTI_RELEASE = "META-INF/versions/"
_CLASS_FILE_BYTES_MAX = 16 * 1024 * 1024
_JARS_MAX = 2000
#: A search through more classes would take minutes.
_REACHED_CLASSES_MAX = 30_000
_JAR_ENDS = (".jar", ".zip")
#: The start of the names of files with attributes of other files, which macOS writes.
_OF_MAC = "._"
_HASHED_CHUNK_BYTES = 1024 * 1024
_FILE_VERSION = re.compile(r"-(\d[^/]*)\.(?:jar|zip)$")
_MANIFEST = "META-INF/MANIFEST.MF"
_PROPERTIES = re.compile(r"META-INF/maven/[^/]+/([^/]+)/pom\.properties$")
_METADATA_BYTES_MAX = 1024 * 1024


class ScanError(Exception):
    """A folder is no plugin; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A class and where it is."""

    parsed: ClassFile
    archive: zipfile.ZipFile
    entry: zipfile.ZipInfo
    jar: Jar


def scan(
    path: Path,
    name: str,
    *,
    source: str = "",
    limits: ArchiveLimits = LIMITS,
    follow_links: bool = False,
) -> Plugin:
    """The plugin in a folder, or in a jar; runs none of its code.

    Args:
        path: The folder with its jars, at any depth; or a jar.
        name: The name of the plugin.
        source: The path or the coordinates from which it was installed.
        limits: What each jar may contain.
        follow_links: Whether links to folders and jars are followed, as in a ``plugin.path``.

    Raises:
        ScanError: It has no jar, or too many.
        ArchiveError: A jar is no zip archive, damaged, or beyond the limits.
        OSError: The folder cannot be read.
    """
    paths = list(jar_paths(path, follow_links=follow_links))
    if not paths:
        raise ScanError(f"{path} has no jar: a plugin is a folder with jars, at any depth")
    if len(paths) > _JARS_MAX:
        raise ScanError(f"{path} has more than {_JARS_MAX} jars, the limit of a plugin")
    with ExitStack() as stack:
        classes: dict[str, _Found] = {}
        jars, problems = [], []
        versions: dict[str, str] = {}
        for each in paths:
            relative = str(each.relative_to(path)) if each != path else each.name
            archive = stack.enter_context(opened_zip(each, limits))
            jar = Jar(relative, _sha256(each), each.stat().st_size)
            jars.append(jar)
            versions[relative] = _version(archive, each)
            problems += _nested(archive, each)
            for parsed, entry in _classes(archive, each, problems):
                classes.setdefault(parsed.name, _Found(parsed, archive, entry, jar))
        reach = _Reach(classes)
        found = [
            JavaClass(
                name=each.parsed.name,
                kind=kind,
                version=versions[each.jar.path],
                plugin=name,
                path=path,
                needs_kafka=reach.needs_kafka(each.parsed.name),
                java=max(parent.java for parent in _lineage(each.parsed, classes)),
                jar_sha256=each.jar.sha256,
            )
            for _, each in sorted(classes.items())
            if each.parsed.instantiable
            for kind in _kinds(each.parsed, classes)
        ]
    return Plugin(name, path, source, tuple(found), tuple(jars), tuple(problems))


def is_one_plugin(folder: Path, limits: ArchiveLimits = LIMITS) -> bool:
    """Whether jars in a folder are one plugin: a plugin's class in one names a class of another.

    Raises:
        ScanError, ArchiveError, OSError: As by ``scan``.
    """
    found = scan(folder, folder.name, limits=limits, follow_links=True)
    with ExitStack() as stack:
        archives = [
            stack.enter_context(opened_zip(each, limits))
            for each in jar_paths(folder, follow_links=True)
        ]
        names = [{each.filename for each in archive.infolist()} for archive in archives]
        for java_class in found.classes:
            entry = _entry_of(java_class.name)
            number = next(n for n, own in enumerate(names) if entry in own)
            data = _class_bytes(archives[number], archives[number].getinfo(entry))
            others = set().union(*names) - names[number]
            for each in read_class(data, with_references=True).references:
                if _entry_of(each) in others:
                    return True
    return False


def jar_paths(path: Path, *, follow_links: bool) -> Iterator[Path]:
    """The jars of a plugin, in the order of its class path."""
    if path.is_file():
        yield path
        return
    seen = set()
    for folder, folders, files in os.walk(path, followlinks=follow_links, onerror=_raise):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted(files):
            found = Path(folder) / name
            if not name.lower().endswith(_JAR_ENDS) or name.startswith(_OF_MAC):
                continue
            if found.is_symlink() and not follow_links:
                continue
            if found.is_file():  # else a dangling link
                yield found


def _raise(error: OSError) -> None:
    raise error


def _classes(
    archive: zipfile.ZipFile, path: Path, problems: list[str]
) -> Iterator[tuple[ClassFile, zipfile.ZipInfo]]:
    for entry in archive.infolist():
        name = entry.filename
        if not name.endswith(".class") or name.startswith(_MULTI_RELEASE):
            continue
        if name.endswith(("module-info.class", "package-info.class")):
            continue
        if _is_from_parent(name.removesuffix(".class").replace("/", ".")):
            continue
        try:
            parsed = read_class(_class_bytes(archive, entry))
            if name == _entry_of(parsed.name):  # else no class loader finds it
                yield parsed, entry
        except ClassFileError as error:
            problems.append(f"{name} in {path.name} is no class file: {error}")
        except zipfile.BadZipFile as error:
            raise ArchiveError(f"{path} is damaged ({error})") from None


def _entry_of(class_name: str) -> str:
    """Where a class loader looks for a class in a jar."""
    return f"{class_name.replace('.', '/')}.class"


def _class_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    data = read_entry(archive, entry, _CLASS_FILE_BYTES_MAX)
    if len(data) > _CLASS_FILE_BYTES_MAX:
        raise ClassFileError(f"it is larger than {_CLASS_FILE_BYTES_MAX} bytes")
    return data


def _is_from_parent(name: str) -> bool:
    return _FROM_PARENT.match(name) is not None and _KAFKA_PARTS.match(name) is None


def _nested(archive: zipfile.ZipFile, path: Path) -> list[str]:
    """Jars in a jar, which no class loader reads."""
    inner = [each.filename for each in archive.infolist() if each.filename.endswith(_JAR_ENDS)]
    if not inner:
        return []
    return [
        f"{path.name} has jars in it, such as {inner[0]}, which Java does not read there: unpack it"
    ]


def _lineage(parsed: ClassFile, classes: Mapping[str, _Found]) -> list[ClassFile]:
    """A class and its parents in the plugin."""
    found, waiting = {parsed.name: parsed}, [parsed]
    while waiting:
        for name in waiting.pop().parents:
            if name in classes and name not in found:
                found[name] = classes[name].parsed
                waiting.append(found[name])
    return list(found.values())


def _kinds(parsed: ClassFile, classes: Mapping[str, _Found]) -> list[Kind]:
    kinds: set[Kind] = set()
    for each in _lineage(parsed, classes):
        for name in each.parents:
            if name not in classes:
                kinds.update(kinds_of_kafka(name))
    return [each for each in Kind if each in kinds]


def kinds_of_kafka(name: str) -> tuple[Kind, ...]:
    """The kinds of a class or type of Kafka; none for other classes."""
    if name in _KINDS:
        return _KINDS[name]
    if name.startswith(_CONNECT):
        for package, kinds in _KINDS_BY_PACKAGE.items():
            if name.startswith(package):
                return kinds
    return ()


class _Reach:
    """Which classes of a plugin reach a client of Kafka, through classes that they name."""

    def __init__(self, classes: Mapping[str, _Found]) -> None:
        self._classes = classes
        self._references: dict[str, frozenset[str]] = {}

    def needs_kafka(self, name: str) -> bool:
        seen, waiting = {name}, [name]
        while waiting and len(seen) <= _REACHED_CLASSES_MAX:
            references = self._of(waiting.pop())
            if references & _KAFKA_CLIENTS:
                return True
            new = {each for each in references - seen if each in self._classes}
            seen |= new
            waiting += new
        return False

    def _of(self, name: str) -> frozenset[str]:
        if name not in self._references:
            at = self._classes[name]
            data = _class_bytes(at.archive, at.entry)
            named = read_class(data, with_references=True).references
            kept = {each for each in named if each in self._classes or each in _KAFKA_CLIENTS}
            self._references[name] = frozenset(kept)
        return self._references[name]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_HASHED_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _version(archive: zipfile.ZipFile, path: Path) -> str:
    """The version of a jar: Maven's, else the manifest's, else its file name's; else empty."""
    in_name = _FILE_VERSION.search(path.name)
    properties = [
        each
        for each in archive.infolist()
        if (part := _PROPERTIES.match(each.filename)) and path.name.startswith(part[1])
    ]
    if len(properties) == 1:
        version = _property(_lines(archive, properties[0]), "version", "=")
        if version:
            return version
    try:
        manifest = _lines(archive, archive.getinfo(_MANIFEST))
    except KeyError:
        manifest = []
    return _property(manifest, "Implementation-Version", ":") or (in_name[1] if in_name else "")


def _lines(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> list[str]:
    return read_entry(archive, entry, _METADATA_BYTES_MAX).decode(errors="replace").splitlines()


def _property(lines: Iterable[str], name: str, mark: str) -> str:
    for each in lines:
        key, found, value = each.partition(mark)
        if found and key.strip() == name:
            return value.strip()
    return ""
