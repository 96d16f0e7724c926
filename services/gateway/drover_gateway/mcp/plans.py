"""Seals a plan: its hash is valid for one caller, one action and one state of the connector.

The server keeps nothing. The hash is the time of its end and an HMAC of this time, the caller, the
action with its arguments, and a digest of the state that the plan was made from; ``apply`` computes
all of it again. Several servers
accept each other's hashes if they have the same keys.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: How long a plan can be applied: an old one is no longer what the user has agreed to.
PLAN_MAX_AGE_S = 3_600
_END = re.compile(r"([0-9a-f]{1,12})-")
_KEY_BYTES = 32
_KEY_MIN_CHARS = 32


class PlanSeal:
    """Seals and checks plans.

    Args:
        keys: The first one seals, all of them are accepted, so that keys can be rotated. Empty for
            a key that this object makes.
        now_s: Returns the time in seconds since 1970.
    """

    def __init__(
        self, keys: Sequence[bytes] = (), *, now_s: Callable[[], float] = time.time
    ) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(_KEY_BYTES),)
        self._now_s = now_s

    @classmethod
    def from_setting(cls, text: str) -> "PlanSeal":
        """From DROVER_GATEWAY_SESSION_KEYS: keys of at least 32 characters, comma-separated.

        Raises:
            ValueError: A key is too short; the message does not contain it.
        """
        keys = [each.strip() for each in text.split(",") if each.strip()]
        if any(len(each) < _KEY_MIN_CHARS for each in keys):
            raise ValueError(
                f"DROVER_GATEWAY_SESSION_KEYS: each key needs at least {_KEY_MIN_CHARS} "
                "characters: python -c 'import secrets; print(secrets.token_hex(32))' makes one"
            )
        return cls([each.encode() for each in keys])

    def hash_of(self, caller: str, action: Mapping[str, Any], state: str) -> str:
        """The hash of a plan, valid for ``PLAN_MAX_AGE_S``."""
        ends_s = int(self._now_s()) + PLAN_MAX_AGE_S
        return self._sealed(self._keys[0], ends_s, caller, action, state)

    def is_valid(self, plan_hash: str, caller: str, action: Mapping[str, Any], state: str) -> bool:
        """Whether a hash is the one of this plan, and not too old."""
        end = _END.match(plan_hash)
        if end is None or int(end[1], 16) < self._now_s():
            return False
        given = plan_hash.encode(errors="replace")
        return any(
            hmac.compare_digest(
                given, self._sealed(key, int(end[1], 16), caller, action, state).encode()
            )
            for key in self._keys
        )

    @staticmethod
    def _sealed(key: bytes, ends_s: int, caller: str, action: Mapping[str, Any], state: str) -> str:
        text = json.dumps([ends_s, caller, action, state], sort_keys=True, separators=(",", ":"))
        return f"{ends_s:x}-{hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}"


def digest(*parts: Any) -> str:
    """A digest of the state that a plan was made from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
