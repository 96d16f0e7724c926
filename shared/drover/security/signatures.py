"""Signatures of calls between workers: an HMAC over which call it is and its request's bytes.

The call's name keeps a request from being replayed as another call.
"""

import base64
import hmac
from dataclasses import dataclass

from drover.model.config import SessionKey

#: Kafka Connect's (Java's) names, and hashlib's.
ALGORITHMS = {"HmacSHA256": "sha256", "HmacSHA384": "sha384", "HmacSHA512": "sha512"}
#: The gRPC metadata that holds a signature.
SIGNATURE_KEY = "drover-signature"
#: Sent in place of a signature by a worker that has read no session key yet.
NO_KEY = "none"

_CONTEXT = "drover worker call 1"
_TIME_MAX_CHARS = 15


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call shows of the session key that signed it.

    Attributes:
        algorithm: As ``ALGORITHMS`` names it, if the receiver knows it.
        key_ms: When the key was made, which names it.
        digest: The HMAC.
    """

    algorithm: str
    key_ms: int
    digest: bytes

    def encode(self) -> str:
        """The signature as gRPC metadata carries it."""
        return f"{self.algorithm} {self.key_ms} {base64.b64encode(self.digest).decode()}"

    @classmethod
    def decode(cls, text: str) -> "Signature":
        """The signature of some metadata.

        Raises:
            ValueError: It is none; the text is not repeated.
        """
        parts = text.split(" ")
        if len(parts) != 3:
            raise ValueError("it has not the form of a signature")
        algorithm, key_ms, digest = parts
        if not (key_ms.isascii() and key_ms.isdigit() and len(key_ms) <= _TIME_MAX_CHARS):
            raise ValueError("it names no key")
        try:
            return cls(algorithm, int(key_ms), base64.b64decode(digest, validate=True))
        except ValueError:
            raise ValueError("its digest is not base64") from None

    def is_of(self, key: SessionKey, method: str, body: bytes) -> bool:
        """Whether ``key`` signed this call of ``method`` (``/package.Service/Rpc``)."""
        made = sign(key, self.algorithm, method, body)
        return hmac.compare_digest(made.digest, self.digest)


def sign(key: SessionKey, algorithm: str, method: str, body: bytes) -> Signature:
    """Sign a call.

    Args:
        key: The session key.
        algorithm: One of ``ALGORITHMS``.
        method: gRPC's name of the call, ``/package.Service/Rpc``.
        body: The serialized request.
    """
    head = f"{_CONTEXT}\n{method}\n{key.creation_ms}\n".encode()
    digest = hmac.digest(key.key, head + body, ALGORITHMS[algorithm])
    return Signature(algorithm, key.creation_ms, digest)
