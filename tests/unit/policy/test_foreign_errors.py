"""Texts for errors of client libraries."""

import errno
import ssl
from socket import gaierror

import pytest

from drover.policy.egress import ForbiddenHostError
from drover.policy.foreign_errors import connection_text, response_text, shown_url


class _ReadTimeoutError(Exception):
    pass


class _RemoteProtocolError(Exception):
    pass


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (ForbiddenHostError("a:1 is not a host"), "a:1 is not a host"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (gaierror(-2, "Name or service not known"), "cannot be resolved: Name or service"),
        (ssl.SSLError(1, "wrong version number"), "wrong version number"),
        (TimeoutError("CANARY"), "the request timed out"),
        (_ReadTimeoutError("CANARY"), "the request timed out"),
        (_RemoteProtocolError("illegal status line: CANARY"), "does not speak HTTP"),
        (ValueError("CANARY"), "Exception"),
        (OSError("CANARY"), "Exception"),
    ],
)
def test_the_cause_is_told_but_no_text_of_the_server(cause: Exception, told: str) -> None:
    error = Exception("CANARY")
    error.__cause__ = cause
    assert told in connection_text(error)
    assert "CANARY" not in connection_text(error)


def test_a_response_is_told_by_its_status_type_and_length() -> None:
    assert response_text(404, "text/html; charset=CANARY", 7) == "404 (text/html, 7 bytes)"
    assert response_text(500, "CANARY", 0) == "500 (0 bytes)"
    assert response_text(500, None, 1) == "500 (1 bytes)"


def test_a_url_is_shown_without_secrets() -> None:
    assert shown_url("https://u:p@a.example:1/x?key=hidden#y") == "https://a.example:1/x"
    assert shown_url("http://[x") == "the URL"
