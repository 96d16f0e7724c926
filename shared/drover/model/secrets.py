"""Detects settings with secrets by name, and masks of secrets by value."""

import re

MASK = "********"
#: Masks of other products, which show a config and write it back: kafbat's kafka-ui has six
#: asterisks, Confluent's products have sixteen, and others have dots.
_MASKS = re.compile(r"\*{6,}|[•●]{6,}")

_SECRET_KEY = re.compile(
    r"passw(or)?d|secret|token|credential|private.?key|api.?key|access.?key|jaas|user.?info|"
    r"keystore.key$|key.pem$|\.headers?\.(?!converter)",
    re.IGNORECASE,
)


def sounds_secret(key: str) -> bool:
    """Whether a setting with this name is treated as a secret although not declared as one."""
    return _SECRET_KEY.search(key) is not None


def is_mask(value: str) -> bool:
    """Whether a value is the mask of a secret, of this product or of another one."""
    return _MASKS.fullmatch(value) is not None
