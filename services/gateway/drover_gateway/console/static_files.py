"""The style sheet, the script and the icon of the console, which the gateway serves itself."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

PREFIX = "/ui/static/"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file; ``url`` has a part of its SHA-256, so that browsers may keep it for ever."""

    body: bytes
    content_type: str
    url: str


def _read(name: str) -> StaticFile:
    body = files("drover_gateway.console").joinpath("static", name).read_bytes()
    digest = hashlib.sha256(body).hexdigest()[:16]
    return StaticFile(body, _TYPES[name.rpartition(".")[2]], f"{PREFIX}{name}?v={digest}")


#: By path.
STATIC_FILES: Mapping[str, StaticFile] = {
    f"{PREFIX}{name}": _read(name) for name in ("console.css", "console.js", "icon.svg")
}
STYLE_URL = STATIC_FILES[f"{PREFIX}console.css"].url
ICON_URL = STATIC_FILES[f"{PREFIX}icon.svg"].url
SCRIPT_URL = STATIC_FILES[f"{PREFIX}console.js"].url
