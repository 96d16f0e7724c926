"""Which settings hold secrets by their name, and what is shown in place of a secret."""

import re

MASK = "********"

_SECRET_KEY = re.compile(
    r"passw(or)?d|secret|token|credential|private.?key|api.?key|access.?key|jaas|user.?info|"
    r"keystore.key$|key.pem$",
    re.IGNORECASE,
)


def sounds_secret(key: str) -> bool:
    """Whether a setting of this name is taken to hold a secret, though nobody declares it so."""
    return _SECRET_KEY.search(key) is not None
