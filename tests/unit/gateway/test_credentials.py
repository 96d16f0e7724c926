import base64

import pytest

from drover.errors import UnauthenticatedError
from drover_gateway.identity.credentials import ANONYMOUS, TOKEN_MAX_CHARS, caller_of


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


@pytest.mark.parametrize(
    ("header", "token", "author"),
    [
        (b"Bearer abc.def-_~+/=", "abc.def-_~+/=", "rest:10.0.0.7"),
        (b"bearer   abc ", "abc", "rest:10.0.0.7"),
        (basic("ann:the token"), "the token", "ann"),
        (basic("ann:a:b"), "a:b", "ann"),
        (basic(":secret"), "secret", "rest:10.0.0.7"),
        (basic("ann:"), "", "ann"),
        (b"BASIC " + base64.b64encode(b"ann:x"), "x", "ann"),
        (basic("an\r\nn:x"), "x", "ann"),
        (basic("n" * 500 + ":x"), "x", "n" * 128),
    ],
)
def test_a_token_is_sent_as_bearer_or_as_the_password_of_basic(
    header: bytes, token: str, author: str
) -> None:
    caller = caller_of([(b"host", b"h"), (b"authorization", header)], "10.0.0.7")
    assert (caller.token, caller.author) == (token, author)


def test_a_request_without_a_credential_is_sent_with_a_token_that_no_one_has() -> None:
    caller = caller_of([(b"host", b"h"), (b"cookie", b"token=abc")], "10.0.0.7")
    assert caller.token == ""
    assert caller.author == "rest:10.0.0.7"
    assert caller.metadata == (("authorization", f"Bearer {ANONYMOUS}"),)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer a b",
        b"Bearer a\xc3\xa9",
        b"Bearer a\x00b",
        b"Bearer " + b"a" * (TOKEN_MAX_CHARS + 1),
        b"Basic !!!",
        b"Basic",
        b"Basic YQ",
        basic("no colon"),
        b"Basic " + base64.b64encode(b"\xff\xfe:x"),
        basic("ann:line\nfeed"),
        basic("ann:\u00e9"),
        b"Negotiate YII",
        b"abc",
    ],
)
def test_a_malformed_credential_is_refused(header: bytes) -> None:
    with pytest.raises(UnauthenticatedError, match="is malformed"):
        caller_of([(b"authorization", header)], "10.0.0.7")


def test_two_credentials_are_refused() -> None:
    headers = [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")]
    with pytest.raises(UnauthenticatedError, match="several"):
        caller_of(headers, "")
