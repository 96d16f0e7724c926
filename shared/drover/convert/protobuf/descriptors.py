"""Schemas of Protobuf, read by protoc."""

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from drover.python_process import python_command
from drover.record.errors import PassError, SchemaError

#: What reads schemas, which not every installation has.
COMPILER = "grpc_tools"
_CACHED_SCHEMA_COUNT = 1000
_COMPILER_TIMEOUT_S = 60
_MESSAGE_MAX_LENGTH = 500
#: The file name of a schema that has none.
_MAIN = "schema.proto"


class ProtoSchema:
    """A file of messages with its imports; one instance per text, which is cached."""

    def __init__(self, file: Any) -> None:
        self._file = file
        #: Objects that decoders derived from the file, by their keys.
        self.made: dict[Any, Any] = {}

    def message(self, indexes: Sequence[int]) -> Any:
        """The message at a path of indexes: those within the file, then those within each.

        Raises:
            SchemaError: there is none.
        """
        found: Any = None
        for index in indexes:
            messages = _within(self._file if found is None else found)
            if not 0 <= index < len(messages):
                raise SchemaError(f"the schema has no message at {list(indexes)}")
            found = messages[index]
        if found is None:
            raise SchemaError("the record does not say which message it is")
        return found

    def first(self, name: str | None) -> tuple[tuple[int, ...], Any]:
        """The path and the message of this name, with its package or without; else the first.

        Raises:
            SchemaError: there is none at all.
        """
        everything = list(_paths(self._file, ()))
        if not everything:
            raise SchemaError("the schema has no message")
        named = (each for each in everything if name in (each[1].full_name, each[1].name))
        return next(named, everything[0])


@lru_cache(maxsize=_CACHED_SCHEMA_COUNT)
def parse_proto(text: str, references: tuple[tuple[str, str], ...] = ()) -> ProtoSchema:
    """The schema of a text (or of a serialized file in base64); ``references`` are the files that
    it imports, by their names.

    Raises:
        SchemaError: it is none.
    """
    serialized = _serialized(text)
    if serialized is not None:
        serialized.name = serialized.name or _MAIN
        # protoc accepts serialized files and text files together
        return _in_pool(serialized.name, _compiled({}, dict(references), serialized))
    return _in_pool(_MAIN, _compiled({_MAIN: text}, dict(references), None))


def _serialized(text: str) -> FileDescriptorProto | None:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
        return FileDescriptorProto.FromString(raw) if raw else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def _compiled(
    main: dict[str, str], references: dict[str, str], serialized: FileDescriptorProto | None
) -> FileDescriptorSet:
    """Compile all files; each comes after its imports."""
    known = _known_files()
    texts = dict(main)
    for name, text in references.items():
        made = _serialized(text)
        if made is None:
            texts[name] = text
        else:
            made.name = name
            known.file.append(made)
    if serialized is not None:
        known.file.append(serialized)
        texts[f"all/{_MAIN}"] = f'syntax = "proto3";\nimport "{serialized.name}";\n'
    with tempfile.TemporaryDirectory(prefix="drover-proto-") as folder:
        root = Path(folder)
        for name, text in texts.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise SchemaError(f"the import {name!r} leads out of the schema")
            target = root / "files" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        (root / "known").write_bytes(known.SerializeToString())
        _run_protoc(root, next(iter(texts)) if main else f"all/{_MAIN}")
        return FileDescriptorSet.FromString((root / "made").read_bytes())


def _run_protoc(root: Path, name: str) -> None:
    command = [
        *python_command("grpc_tools.protoc"),
        *(f"-I{each}" for each in (root / "files", *_places())),
        *(f"--descriptor_set_in={root / 'known'}", "--include_imports"),
        *(f"--descriptor_set_out={root / 'made'}", name),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PassError(f"protoc cannot be run: {type(error).__name__}: {error}") from None
    if done.returncode:
        told = done.stderr.replace(str(root / "files"), "").strip()[:_MESSAGE_MAX_LENGTH]
        raise SchemaError(f"no schema of Protobuf: {told}")


def _in_pool(name: str, files: FileDescriptorSet) -> ProtoSchema:
    pool = DescriptorPool()
    try:
        for each in files.file:
            pool.AddSerializedFile(each.SerializeToString())
        return ProtoSchema(pool.FindFileByName(name))
    except (TypeError, KeyError) as error:
        raise SchemaError(f"no schema of Protobuf: {error}") from None


def _known_files() -> FileDescriptorSet:
    """Files that schemas may import without a reference in the registry."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from google.protobuf import descriptor_pb2

    files = FileDescriptorSet()
    for each in (descriptor_pb2, meta_pb2, decimal_pb2):
        files.file.append(FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb))
    return files


def _places() -> Iterator[Path]:
    """Where the files google/protobuf/*.proto and google/type/*.proto are."""
    compiler, types = find_spec(COMPILER), find_spec("google.type")
    for spec, further in ((compiler, "_proto"), (types, "../..")):
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield (Path(place) / further).resolve()


def _within(place: Any) -> list[Any]:
    """The messages of a file or a message, in their order."""
    found = getattr(place, "nested_types", None)
    return list(place.message_types_by_name.values() if found is None else found)


def _paths(place: Any, before: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    for index, each in enumerate(_within(place)):
        yield (*before, index), each
        yield from _paths(each, (*before, index))
