"""Java's properties files."""

from collections.abc import Mapping
from pathlib import Path


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write one setting per line, with special characters escaped; keys must not contain spaces."""
    lines = [f"{_escaped(key)}={_escaped(str(value))}\n" for key, value in settings.items()]
    path.write_text("".join(lines), encoding="ascii")


def _escaped(text: str) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if out.startswith(" "):
        out = "\\" + out
    for special in ("=", ":", "#", "!"):
        out = out.replace(special, "\\" + special)
    return "".join(each if each.isascii() else _unicode(each) for each in out)


def _unicode(character: str) -> str:
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
