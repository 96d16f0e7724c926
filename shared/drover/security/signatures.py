"""Signatures of calls between workers: an HMAC over the method's name and the request's bytes.

The method's name prevents replaying a request as a call of another method.
"""

import base64
import hmac
from dataclasses import dataclass

from drover.model.config import SessionKey

#: hashlib's names of the algorithms, by their names in Kafka Connect (Java).
ALGORITHMS = {"HmacSHA256": "sha256", "HmacSHA384": "sha384", "HmacSHA512": "sha512"}
#: The gRPC metadata key of a signature.
SIGNATURE_KEY = "drover-signature"
#: Sent in place of a signature by a worker that has read no session key yet.
NO_KEY = "none"

_CONTEXT = "drover worker call 1"
_TIME_MAX_CHARS = 15


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a call.

    Attributes:
        algorithm: The algorithm's name, of ``ALGORITHMS`` or unknown to the receiver.
        key_ms: The creation time of the session key, which identifies it.
        digest: The HMAC.
    """

    algorithm: str
    key_ms: int
    digest: bytes

    def encode(self) -> str:
        """The signature as the value of gRPC metadata."""
        return f"{self.algorithm} {self.key_ms} {base64.b64encode(self.digest).decode()}"

    @classmethod
    def decode(cls, text: str) -> "Signature":
        """Decode the value of gRPC metadata.

        Raises:
            ValueError: The text is not a signature; the message does not repeat the text.
        """
        parts = text.split(" ")
        if len(parts) != 3:
            raise ValueError("it must have three parts")
        algorithm, key_ms, digest = parts
        if not (key_ms.isascii() and key_ms.isdigit() and len(key_ms) <= _TIME_MAX_CHARS):
            raise ValueError("it has no key time")
        try:
            return cls(algorithm, int(key_ms), base64.b64decode(digest, validate=True))
        except ValueError:
            raise ValueError("its digest is not base64") from None

    def is_of(self, key: SessionKey, method: str, body: bytes) -> bool:
        """Whether ``key`` signed this call of ``method`` (``/package.Service/Rpc``)."""
        expected = sign(key, self.algorithm, method, body)
        return hmac.compare_digest(expected.digest, self.digest)


def sign(key: SessionKey, algorithm: str, method: str, body: bytes) -> Signature:
    """Sign a call.

    Args:
        key: The session key.
        algorithm: One of ``ALGORITHMS``.
        method: gRPC's name of the method, ``/package.Service/Rpc``.
        body: The serialized request.
    """
    head = f"{_CONTEXT}\n{method}\n{key.creation_ms}\n".encode()
    digest = hmac.digest(key.key, head + body, ALGORITHMS[algorithm])
    return Signature(algorithm, key.creation_ms, digest)
