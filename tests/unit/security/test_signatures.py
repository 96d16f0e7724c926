"""Signatures of calls between workers."""

import hashlib
import hmac

import pytest

from drover.model.config import SessionKey
from drover.security.signatures import ALGORITHMS, Signature, sign

KEY = SessionKey(b"k" * 32, "HmacSHA256", 1_000)
METHOD = "/drover.api.worker.v1.WorkerService/Forward"


def test_a_signature_is_an_hmac_over_the_method_the_key_and_the_request() -> None:
    made = sign(KEY, "HmacSHA256", METHOD, b"\n\xff")
    text = b"drover worker call 1\n" + METHOD.encode() + b"\n1000\n\n\xff"
    assert made == Signature("HmacSHA256", 1_000, hmac.new(KEY.key, text, hashlib.sha256).digest())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_is_known_again_after_its_way(algorithm: str) -> None:
    made = sign(KEY, algorithm, METHOD, b"request")
    read = Signature.decode(made.encode())
    assert read == made
    assert read.is_of(KEY, METHOD, b"request")


@pytest.mark.parametrize(
    ("key", "method", "body"),
    [
        (SessionKey(b"K" * 32, "HmacSHA256", 1_000), METHOD, b"request"),
        (SessionKey(KEY.key, "HmacSHA256", 1_001), METHOD, b"request"),
        (KEY, METHOD + "s", b"request"),
        (KEY, METHOD, b"request."),
    ],
    ids=["another key", "a key of another time", "another call", "another request"],
)
def test_it_is_good_for_nothing_else(key: SessionKey, method: str, body: bytes) -> None:
    made = sign(KEY, "HmacSHA256", METHOD, b"request")
    assert not made.is_of(key, method, body)


@pytest.mark.parametrize(
    "text",
    ["", "x", "HmacSHA256 1", "HmacSHA256 -2 aGk=", "HmacSHA256 1 ä", f"H {'9' * 30} aGk="],
)
def test_other_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it"):
        Signature.decode(text)
