"""The page to sign in."""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from drover_gateway.console.frame import HOME, ISSUER, SIGN_IN, Visit, commands, page
from drover_gateway.console.html import tag
from drover_gateway.console.http import Response

REFUSED = (
    "The workers do not accept this token: it is wrong, was revoked, or has expired. Ask an"
    " administrator of the cluster for a new one."
)
NO_TOKEN = "Enter the token alone, as the administrator gave it to you."
SIGNED_OUT = "signed-out"
#: Why the user is here, by the parameter ``reason``; the texts of ``identity.oidc.Refusal``.
REASONS: Mapping[str, str] = {
    "issuer-unavailable": (
        "The issuer does not answer, or cannot be used. Try again, or sign in with a token. The"
        " gateway's log has the cause."
    ),
    "issuer-denied": (
        "The issuer did not let you in. Ask an administrator of the issuer for access to Drover."
    ),
    "issuer-error": (
        "The issuer did not complete the sign-in. Try again; an administrator finds the cause in"
        " the gateway's log."
    ),
    "unknown-state": (
        "This sign-in was not started in this browser at this address, took more than 10 minutes,"
        " or was completed before. Sign in again."
    ),
    "bad-token": (
        "The issuer's answer was not accepted, so you are not signed in. An administrator finds the"
        " cause in the gateway's log. One cause is a clock that is wrong by more than 30 s."
    ),
    "token-too-large": (
        "The issuer's token is too large for cookies: an administrator of the issuer can leave out"
        " claims that Drover does not need, such as roles of other applications."
    ),
    "workers-refused": (
        "The issuer signed you in, but the workers do not accept its token. An administrator"
        " compares DROVER_JWKS, DROVER_JWT_ISSUER and DROVER_JWT_AUDIENCE of the workers with the"
        " issuer; the workers' log has the cause."
    ),
    "workers-unavailable": (
        "The issuer signed you in, but the workers do not answer, so the token could not be"
        " checked. Try again."
    ),
    "issuer-ended": ("Your session has ended: the issuer no longer renews it. Sign in again."),
    SIGNED_OUT: "You are signed out here. You may still be signed in at the issuer.",
}
_IN_CLEAR = (
    "This connection is not encrypted. Use it on this machine only: an administrator can set"
    " DROVER_GATEWAY_TLS_CERT for HTTPS."
)
_LOCAL = re.compile(r"/ui/[!-~]*")


def local(target: str) -> str:
    """A page of the console to go to; the first one for every other address."""
    return target if _LOCAL.fullmatch(target) and "\\" not in target else HOME


def sign_in(visit: Visit, target: str, *, error: str, secure: bool, issuer: str = "") -> bytes:
    """The page.

    Args:
        visit: Who asks for it.
        target: The page to open after the sign-in.
        error: Why the user is not signed in; empty if there is nothing to say.
        secure: Whether the connection is encrypted.
        issuer: The name of the issuer that users may sign in with; empty for none.
    """
    is_note = error == REASONS[SIGNED_OUT]
    why = tag(
        "p",
        error,
        class_="quiet-note" if is_note else "bad",
        role="status" if is_note else "alert",
        id="why",
    )
    by_issuer = tag(
        "p",
        tag(
            "a",
            f"Sign in with {issuer}",
            class_="button",
            href=f"{ISSUER}?{urlencode({'next': target})}",
        ),
        class_="by-issuer",
    )
    form = visit.form(
        SIGN_IN,
        tag(
            "label",
            "Token",
            tag(
                "input",
                type="password",
                name="token",
                required=True,
                autocomplete="current-password",
                aria_invalid="true" if error and not is_note else None,
                aria_describedby="why" if error else None,
                autofocus=not issuer,
            ),
        ),
        tag("input", type="hidden", name="next", value=target),
        tag("button", "Sign in" if not issuer else "Sign in with the token", class_="primary"),
        class_="sign-in",
    )
    explanation = tag(
        "p",
        "The token is the one that you use as DROVER_TOKEN on the command line and as the bearer"
        " token of the API. The console acts with its rights, and with no others.",
    )
    warning = None if secure else tag("p", _IN_CLEAR, class_="quiet-note")
    same = commands(
        "The same from the command line and by gRPC",
        [
            "DROVER_TOKEN=TOKEN drover connector list --address WORKER",
            "grpcurl -H 'authorization: Bearer TOKEN' WORKER"
            " drover.api.connect.v1.ConnectService/GetClusterInfo",
        ],
    )
    return page(
        visit,
        "Sign in",
        why if error else None,
        by_issuer if issuer else None,
        form,
        explanation,
        warning,
        same,
    )


def onward(visit: Visit, title: str, url: str) -> Response:
    """A page that the browser leaves at once for another one.

    The policy for forms does not concern it, unlike a redirect after a form, and the next page is
    not loaded on behalf of the site before.
    """
    body = page(visit, title, tag("p", tag("a", "Continue", href=url)))
    return Response(body, headers=(("refresh", f"0; url={url}"),))
