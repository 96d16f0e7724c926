"""The brokers' names of users, from settings of Kafka's clients. Standard library only."""

from collections.abc import Mapping

_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


def principal_of(client: Mapping[str, str]) -> str:
    """The brokers' name for the user of librdkafka's settings, as far as these show it."""
    user = client.get("sasl.username")
    if user:
        return f"User:{user}"
    if client.get("security.protocol", "plaintext").upper().startswith("SASL"):
        return "the user of the login"
    has_certificate = any(client.get(name) for name in _CERTIFICATES)
    return "the user of the client certificate" if has_certificate else "User:ANONYMOUS"
