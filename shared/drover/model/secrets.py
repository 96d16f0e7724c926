"""Detects settings with secrets by name, and defines the mask for secrets."""

import re

MASK = "********"

_SECRET_KEY = re.compile(
    r"passw(or)?d|secret|token|credential|private.?key|api.?key|access.?key|jaas|user.?info|"
    r"keystore.key$|key.pem$|\.headers?\.(?!converter)",
    re.IGNORECASE,
)


def sounds_secret(key: str) -> bool:
    """Whether a setting with this name is treated as a secret although not declared as one."""
    return _SECRET_KEY.search(key) is not None
