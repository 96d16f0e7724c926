"""Signatures of calls between workers: an HMAC over which call it is, when it was signed, and its
request's bytes.

The method keeps a request from being replayed as another call, the time from being replayed later.
"""

import base64
import hmac
from dataclasses import dataclass

from drover.model.config import SessionKey

#: Kafka Connect's (Java's) names, and hashlib's.
ALGORITHMS = {"HmacSHA256": "sha256", "HmacSHA384": "sha384", "HmacSHA512": "sha512"}
#: The gRPC metadata that holds a signature.
SIGNATURE_KEY = "drover-signature"
#: How far apart the clocks of two workers may be, and how late a call may arrive.
AGE_MAX_MS = 300_000

_CONTEXT = b"drover worker call 1"
_TIME_MAX_MS = 253_402_300_799_999  # the year 9999


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call shows of the session key that signed it.

    Attributes:
        algorithm: As ``ALGORITHMS`` names it, if the receiver knows it.
        key_ms: When the key was made, which names it.
        signed_ms: When the call was signed, by the caller's clock.
        digest: The HMAC.
    """

    algorithm: str
    key_ms: int
    signed_ms: int
    digest: bytes

    def encode(self) -> str:
        """The signature as gRPC metadata carries it."""
        digest = base64.b64encode(self.digest).decode()
        return f"{self.algorithm} {self.key_ms} {self.signed_ms} {digest}"

    @classmethod
    def decode(cls, text: str) -> "Signature":
        """The signature of some metadata.

        Raises:
            ValueError: It is none; the text is not repeated.
        """
        parts = text.split(" ")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts[1:3]):
            raise ValueError("it has not the form of a signature")
        if max(map(len, parts[1:3])) > len(str(_TIME_MAX_MS)):
            raise ValueError("its times are none")
        try:
            digest = base64.b64decode(parts[3], validate=True)
        except ValueError:
            raise ValueError("its digest is not base64") from None
        return cls(parts[0], int(parts[1]), int(parts[2]), digest)

    def is_of(self, key: SessionKey, method: str, body: bytes) -> bool:
        """Whether ``key`` signed this call of ``method`` (``/package.Service/Rpc``)."""
        made = sign(key, self.algorithm, method, body, now_ms=self.signed_ms)
        return hmac.compare_digest(made.digest, self.digest)


def sign(key: SessionKey, algorithm: str, method: str, body: bytes, *, now_ms: int) -> Signature:
    """Sign a call.

    Args:
        key: The session key.
        algorithm: One of ``ALGORITHMS``.
        method: gRPC's name of the call, ``/package.Service/Rpc``.
        body: The serialized request.
        now_ms: The time.
    """
    head = f"{method}\n{key.creation_ms}\n{now_ms}\n".encode()
    digest = hmac.digest(key.key, b"\n".join((_CONTEXT, head + body)), ALGORITHMS[algorithm])
    return Signature(algorithm, key.creation_ms, now_ms, digest)
