"""Converts settings of Kafka's Java clients to librdkafka: names, logins, key files."""

import re
from collections.abc import Mapping
from pathlib import PurePath

_JAAS, _MECHANISM = "sasl.jaas.config", "sasl.mechanisms"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_TRUSTSTORE, _KEYSTORE = "ssl.truststore", "ssl.keystore"
#: Java names with their librdkafka names, for settings with the same values.
_RENAMED = {
    "sasl.mechanism": _MECHANISM,
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
#: Java classes whose behaviour librdkafka has built in.
_BUILT_IN = {
    "sasl.login.callback.handler.class": "OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.jwt.retriever.class": "ClientCredentialsJwtRetriever",
}
#: Only Java's client (4.4) sends the cluster id with its first request, for brokers to check.
_WITHOUT_COUNTERPART = ("metadata.cluster.check.enable",)
_USER = {"username": "sasl.username", "password": "sasl.password"}
_CLIENT = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION = "extension_"
_MODULES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "plain.PlainLoginModule": (_USER, ("PLAIN",)),
    "scram.ScramLoginModule": (_USER, ("SCRAM-SHA-256", "SCRAM-SHA-512")),
    "oauthbearer.OAuthBearerLoginModule": (_CLIENT, ("OAUTHBEARER",)),
}
_PACKAGE = "org.apache.kafka.common.security."
_LOGIN = re.compile(r"\s*([\w.$]+)\s+\w+\b(.*);\s*", re.DOTALL)
_OPTION = re.compile(
    r"""\s*([^\s=;"']+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))(?=\s|$)""",
    re.DOTALL,
)
_UNSECURED = (
    "; a token for tests is sasl.oauthbearer.config with enable.sasl.oauthbearer.unsecure.jwt=true"
)
_BY_NAME = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}
_CONVERT = "keytool -importkeystore -deststoretype PKCS12 makes PKCS12 of JKS, openssl pkcs12 PEM"


def librdkafka_settings(java: Mapping[str, str]) -> dict[str, str]:
    """Convert settings of Java clients to librdkafka; other settings stay unchanged. Settings of
    checks that librdkafka does not have are left out.

    Raises:
        ValueError: A setting has no counterpart; the message has no secret.
    """
    found = {
        _RENAMED.get(name, name): value
        for name, value in java.items()
        if name not in _WITHOUT_COUNTERPART
    }
    for name, known in _BUILT_IN.items():
        if found.pop(name, known).rpartition(".")[2] != known:
            raise ValueError(f"{name} must be {known} or omitted: other Java classes cannot run")
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    _take_truststore(found)
    _take_keystore(found)
    login = found.pop(_JAAS, None)
    if login is not None:
        said = _login(login, found.get(_MECHANISM, "GSSAPI"))
        twice = sorted(said.keys() & found.keys())
        if twice:
            raise ValueError(f"{twice[0]} must be omitted, because {_JAAS} sets it as well")
        found |= said
    if found.get(_MECHANISM) == "OAUTHBEARER" and (login is not None or _TOKEN_URL in found):
        found.setdefault("sasl.oauthbearer.method", "oidc")
    return found


def _take_truststore(found: dict[str, str]) -> None:
    kind = found.pop(f"{_TRUSTSTORE}.type", None)
    location = found.pop(f"{_TRUSTSTORE}.location", None)
    if location is None:
        return
    kind = kind or _kind_of(location, "PEM")
    if kind != "PEM":
        raise ValueError(
            f"{_TRUSTSTORE}.location of type {kind[:20]} is not supported: convert it to PEM "
            f"(keytool -exportcert -rfc), and set {_TRUSTSTORE}.type=PEM"
        )
    if f"{_TRUSTSTORE}.password" in found:
        raise ValueError(f"{_TRUSTSTORE}.password must be omitted: PEM has none")
    found["ssl.ca.location"] = location


def _take_keystore(found: dict[str, str]) -> None:
    """Convert a PEM file with key and certificates, or a PKCS #12 file (librdkafka's keystore)."""
    kind = found.pop(f"{_KEYSTORE}.type", None)
    location = found.get(f"{_KEYSTORE}.location")
    if location is None:
        return
    kind = kind or _kind_of(location, "JKS")
    if kind == "PEM":
        del found[f"{_KEYSTORE}.location"]
        found["ssl.certificate.location"] = found["ssl.key.location"] = location
    elif kind != "PKCS12":
        raise ValueError(
            f"{_KEYSTORE}.location of type {kind[:20]} is not supported: convert it to PKCS12 or "
            "PEM "
            f"({_CONVERT}), and set {_KEYSTORE}.type"
        )


def _kind_of(location: str, otherwise: str) -> str:
    return _BY_NAME.get(PurePath(location).suffix.lower(), otherwise)


def _login(text: str, mechanism: str) -> dict[str, str]:
    """Parse a login in Java's grammar: ``module flag name="value" …;``."""
    parsed = _LOGIN.fullmatch(text)
    if parsed is None:
        raise ValueError(f'{_JAAS} must be: a login module, required, options as name="value", ;')
    module = parsed[1].removeprefix(_PACKAGE)
    if module not in _MODULES:
        raise ValueError(
            f"{_JAAS} names the login module {module[:80]}, which is not supported: log in with "
            "PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or a certificate"
        )
    names, mechanisms = _MODULES[module]
    short = module.rpartition(".")[2]
    if mechanism not in mechanisms:
        raise ValueError(
            f"sasl.mechanism must be {' or '.join(mechanisms)} with {short} in {_JAAS}, not "
            f"{mechanism[:20]}"
        )
    options = _options(parsed[2])
    said = {names[name]: options.pop(name) for name in names if name in options}
    if names is _CLIENT:
        extensions = [name for name in options if name.startswith(_EXTENSION)]
        told = [f"{each.removeprefix(_EXTENSION)}={options.pop(each)}" for each in extensions]
        said |= {"sasl.oauthbearer.extensions": ",".join(told)} if told else {}
    if options:
        unknown = min(options)
        hint = _UNSECURED if unknown.startswith("unsecured") else ""
        raise ValueError(
            f"{_JAAS}: options of {short} are {', '.join(names)}, not {unknown[:40]}{hint}"
        )
    if names is _USER and len(said) < len(names):
        raise ValueError(f"{_JAAS} must have a username and a password")
    return said


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = text
    while rest.strip():
        match = _OPTION.match(rest)
        if match is None:  # the text is a secret and is not shown
            raise ValueError(f'{_JAAS} must be one login, with its options as name="value"')
        value = next(each for each in match.groups()[1:] if each is not None)
        options[match[1]] = re.sub(r"\\(.)", r"\1", value)
        rest = rest[match.end() :]
    return options
