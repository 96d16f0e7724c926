"""Who uses the console: a session in a sealed cookie, and the tokens of its forms.

The gateway keeps nothing. The cookie has the caller's token, encrypted with AES-GCM, so that each
request acts with it. Only the console reads cookies.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: How long a session is valid.
SESSION_S = 8 * 3600
#: The longest token: with the other headers, its cookies fit in a request's head.
TOKEN_MAX_CHARS = 8_000
_NONCE_BYTES = 12
#: Browsers accept about 4,096 bytes for a cookie: longer values are cut into several cookies.
_PART_CHARS = 3_500
_PARTS_MAX = 5
_SECURE_NAME = "__Host-drover"
_PLAIN_NAME = "drover-session"
#: What is sealed, in place of the cookie's name.
_FORM = "form "


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    Attributes:
        id: A random text.
        token: The token that the workers get; empty for a caller who has not signed in.
        begin_s: When it began, in seconds since 1970.
        subject: The user at the issuer; empty if the session began with a token.
        refresh_token: Renews the token; empty if nothing does.
        id_token: The ID token, if the workers get another one.
        renew_s: When the token should be renewed, in seconds since 1970.
        end_s: When the token ends, in seconds since 1970; 0 if that is not known.
    """

    id: str
    token: str
    begin_s: int
    subject: str = ""
    refresh_token: str = ""
    id_token: str = ""
    renew_s: int = 0
    end_s: int = 0

    def has_expired(self, now_s: float) -> bool:
        """Whether it is no longer valid."""
        return not self.begin_s - 60 <= now_s < self.begin_s + SESSION_S


class Sessions:
    """Seals sessions and checks forms.

    Args:
        keys: The first one seals, all are accepted, so that keys can be rotated. Empty for a key
            that this object makes: sessions then end with the process.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        texts = list(keys) or [secrets.token_hex(32)]
        # separate from the keys of plans, which are made from the same setting
        self._keys = [hashlib.sha256(f"drover console: {each}".encode()).digest() for each in texts]

    def new(self, token: str, now_s: float) -> Session:
        """A new session."""
        return Session(secrets.token_urlsafe(16), token, int(now_s))

    def read(self, cookies: Mapping[str, str], now_s: float, *, secure: bool) -> Session | None:
        """The session of a request; None if there is none that is valid."""
        name = _name(secure=secure)
        parts = [cookies.get(name, "")]
        while parts[-1] and len(parts) < _PARTS_MAX:
            parts.append(cookies.get(f"{name}-{len(parts)}", ""))
        data = self.opened("".join(parts), name)
        if data is None:
            return None
        try:
            session = Session(**json.loads(data))
        except TypeError:  # of another version of the gateway
            return None
        return None if session.has_expired(now_s) else session

    def cookies(self, session: Session, *, secure: bool) -> list[str]:
        """The Set-Cookie headers that keep a session, and remove parts of longer ones."""
        name = _name(secure=secure)
        value = self.sealed(json.dumps(asdict(session)).encode(), name)
        parts = [value[at : at + _PART_CHARS] for at in range(0, len(value), _PART_CHARS)]
        return [
            *(_cookie(name, at, part, SESSION_S, secure=secure) for at, part in enumerate(parts)),
            *(_cookie(name, at, "", 0, secure=secure) for at in range(len(parts), _PARTS_MAX)),
        ]

    def removal(self, *, secure: bool) -> list[str]:
        """The Set-Cookie headers that end a session."""
        name = _name(secure=secure)
        return [_cookie(name, at, "", 0, secure=secure) for at in range(_PARTS_MAX)]

    def sealed(self, data: bytes, purpose: str) -> str:
        """Encrypted data as the value of a cookie; ``opened`` needs the same purpose."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + _cipher(self._keys[0]).encrypt(nonce, data, purpose.encode())
        return base64.urlsafe_b64encode(sealed).decode()

    def opened(self, value: str, purpose: str) -> bytes | None:
        """The data in the value of a cookie; None if it was not sealed here."""
        try:
            sealed = base64.urlsafe_b64decode(value.encode("ascii"))
        except ValueError:
            return None
        from cryptography.exceptions import InvalidTag

        for key in self._keys:
            try:
                return _cipher(key).decrypt(
                    sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose.encode()
                )
            except (InvalidTag, ValueError):
                continue
        return None

    def form_token(self, session: Session, form: str) -> str:
        """The token of a form, which only a page of this session can have."""
        return self._form_token(self._keys[0], session, form)

    def accepts_form(self, session: Session, form: str, given: str) -> bool:
        """Whether a form was made for this session."""
        sent = given.encode("utf-8", "replace")
        return any(
            hmac.compare_digest(self._form_token(key, session, form).encode(), sent)
            for key in self._keys
        )

    def seal(self, text: str, session: Session) -> str:
        """A text that a page can send back, and that the browser cannot read.

        Only sessions of the same user open it. If the caller has not signed in, all sessions open
        it: the user continues after a sign-in.
        """
        return self.sealed(text.encode(), f"{_FORM}{_user_of(session)}")

    def unseal(self, sealed: str, session: Session) -> str | None:
        """The text of ``seal``; None if this session cannot open it."""
        for user in dict.fromkeys((_user_of(session), "")):
            data = self.opened(sealed, f"{_FORM}{user}")
            if data is not None:
                return data.decode()
        return None

    @staticmethod
    def _form_token(key: bytes, session: Session, form: str) -> str:
        return hmac.new(key, f"form: {session.id}: {form}".encode(), hashlib.sha256).hexdigest()


def _user_of(session: Session) -> str:
    """The same text in all sessions of a user; empty for a caller who has not signed in."""
    if session.subject:
        return f"subject {session.subject}"
    return f"token {hashlib.sha256(session.token.encode()).hexdigest()}" if session.token else ""


def _cipher(key: bytes) -> "AESGCM":
    # imported here: a gateway whose console is not used does not load cryptography
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _name(*, secure: bool) -> str:
    return _SECURE_NAME if secure else _PLAIN_NAME


def _cookie(name: str, part: int, value: str, age_s: int, *, secure: bool) -> str:
    shown = f"{name}-{part}" if part else name
    # a link from another page, such as a chat's, opens a page of a session; forms have tokens
    rules = "Secure; SameSite=Lax" if secure else "SameSite=Strict"
    return f"{shown}={value}; Path=/; Max-Age={age_s}; HttpOnly; {rules}"
