"""Names of the files of a move."""

import hashlib
from urllib.parse import quote

_ID_MAX_CHARS = 150


def connector_id(name: str) -> str:
    """A connector's name as part of a file name and of keys: ASCII, unique, without a slash."""
    found = quote(name, safe="")
    if found.startswith((".", "-")):
        found = f"%{ord(found[0]):02X}{found[1:]}"
    if len(found) > _ID_MAX_CHARS:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        found = f"{found[:_ID_MAX_CHARS]}-{digest}"
    return found
