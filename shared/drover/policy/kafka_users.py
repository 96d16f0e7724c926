"""The brokers' users: their names, from settings of Kafka's clients, and super users. Standard
library only.
"""

from collections.abc import Mapping

#: The operations on a cluster: a user with all of them is a super user, or the brokers have no
#: authorizer.
ALL_OF_CLUSTER = frozenset(
    {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
)
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
