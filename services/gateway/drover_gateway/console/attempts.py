"""Sign-ins that were started, each in a sealed cookie of the browser that started it.

Nothing is kept here, so any copy of the gateway can finish a sign-in, and several tabs of a browser
can sign in at the same time.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from drover_gateway.console.sessions import Sessions
from drover_gateway.identity.oidc_values import ATTEMPT_S, Attempt

#: With a session, more cookies would not fit in a request's head.
ATTEMPTS_MAX = 3
TARGET_MAX_CHARS = 500
_SECURE_PREFIX = "__Host-drover-sign-in-"
_PLAIN_PREFIX = "drover-sign-in-"
_PURPOSE = "sign-in"


def started(
    sessions: Sessions, attempt: Attempt, cookies: Mapping[str, str], *, secure: bool
) -> Sequence[str]:
    """The Set-Cookie headers that keep an attempt, and remove attempts that are too many."""
    others = {
        name: found
        for name, value in cookies.items()
        if name.startswith(_prefix(secure=secure))
        and (found := _read(sessions, value, attempt.begin_s)) is not None
    }
    newest = sorted(others, key=lambda name: others[name].begin_s, reverse=True)
    kept = set(newest[: ATTEMPTS_MAX - 1])
    old = [name for name in cookies if name.startswith(_prefix(secure=secure)) and name not in kept]
    value = sessions.sealed(json.dumps(asdict(attempt)).encode(), _PURPOSE)
    own = _name(attempt.state, secure=secure)
    return [
        *(_cookie(name, "", 0, secure=secure) for name in old),
        _cookie(own, value, ATTEMPT_S, secure=secure),
    ]


def find(
    sessions: Sessions, state: str, cookies: Mapping[str, str], now_s: float, *, secure: bool
) -> Attempt | None:
    """The attempt of a browser with this state; None if it has none that is valid."""
    found = _read(sessions, cookies.get(_name(state, secure=secure), ""), now_s)
    return found if found is not None and found.state == state else None


def removal(attempt: Attempt, *, secure: bool) -> str:
    """The Set-Cookie header that ends an attempt."""
    return _cookie(_name(attempt.state, secure=secure), "", 0, secure=secure)


def _read(sessions: Sessions, value: str, now_s: float) -> Attempt | None:
    data = sessions.opened(value, _PURPOSE)
    if data is None:
        return None
    try:
        attempt = Attempt(**json.loads(data))
    except TypeError:  # of another version of the gateway
        return None
    return None if attempt.has_expired(now_s) else attempt


def _prefix(*, secure: bool) -> str:
    return _SECURE_PREFIX if secure else _PLAIN_PREFIX


def _name(state: str, *, secure: bool) -> str:
    # a digest: names of cookies are written to more places than their values
    digest = hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()
    return f"{_prefix(secure=secure)}{digest[:16]}"


def _cookie(name: str, value: str, age_s: int, *, secure: bool) -> str:
    # Lax, with and without HTTPS: the browser returns from another site
    rules = "; Secure" if secure else ""
    return f"{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{rules}"
