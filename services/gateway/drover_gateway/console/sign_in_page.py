"""The page to sign in."""

from drover_gateway.console.frame import SIGN_IN, Visit, commands, page
from drover_gateway.console.html import tag

REFUSED = (
    "The workers do not accept this token: it is wrong, was revoked, or has expired. Ask an"
    " administrator of the cluster for a new one."
)
NO_TOKEN = "Enter the token alone, as the administrator gave it to you."
_IN_CLEAR = (
    "This connection is not encrypted. Use it on this machine only: an administrator can set"
    " DROVER_GATEWAY_TLS_CERT for HTTPS."
)


def sign_in(visit: Visit, target: str, *, error: str, secure: bool) -> bytes:
    """The page; ``error`` is the reason why the last token was not accepted."""
    form = visit.form(
        SIGN_IN,
        tag("p", error, class_="bad", role="alert", id="why") if error else None,
        tag(
            "label",
            "Token",
            tag(
                "input",
                type="password",
                name="token",
                required=True,
                autocomplete="current-password",
                aria_invalid="true" if error else None,
                aria_describedby="why" if error else None,
                autofocus=True,
            ),
        ),
        tag("input", type="hidden", name="next", value=target),
        tag("button", "Sign in", class_="primary"),
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
    return page(visit, "Sign in", form, explanation, warning, same)
