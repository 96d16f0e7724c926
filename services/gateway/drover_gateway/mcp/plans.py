"""Seals a plan: its hash is valid for one caller, one action and one state of the connector.

The server keeps nothing. The hash is an HMAC of the caller, the action with its arguments, and a
digest of the state that the plan was made from; ``apply`` computes all of it again. Several servers
accept each other's hashes if they have the same keys.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

_KEY_BYTES = 32
_KEY_MIN_CHARS = 32


class PlanSeal:
    """Seals and checks plans.

    Args:
        keys: The first one seals, all of them are accepted, so that keys can be rotated. Empty for
            a key that this object makes.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(_KEY_BYTES),)

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
        """The hash of a plan."""
        return self._sealed(self._keys[0], caller, action, state)

    def is_valid(self, plan_hash: str, caller: str, action: Mapping[str, Any], state: str) -> bool:
        """Whether a hash is the one of this plan."""
        given = plan_hash.encode(errors="replace")
        return any(
            hmac.compare_digest(given, self._sealed(key, caller, action, state).encode())
            for key in self._keys
        )

    @staticmethod
    def _sealed(key: bytes, caller: str, action: Mapping[str, Any], state: str) -> str:
        text = json.dumps([caller, action, state], sort_keys=True, separators=(",", ":"))
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def digest(*parts: Any) -> str:
    """A digest of the state that a plan was made from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
