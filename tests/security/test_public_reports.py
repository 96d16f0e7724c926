"""Attacks on products of the same kind that became public, tried on Drover's connectors.

Each config must be rejected by the check of its settings alone, before any connection.
"""

from pathlib import Path

import pytest

from drover.config.resolution import ConfigResolver
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import validate_config
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE

KAFKA = {
    "connector.class": "KafkaSource",
    "source.cluster.bootstrap.servers": "kafka.example.com:9092",
    "topics": "orders",
}
JAAS = "source.cluster.sasl.jaas.config"
OAUTH = {
    "source.cluster.security.protocol": "SASL_SSL",
    "source.cluster.sasl.mechanism": "OAUTHBEARER",
}
TOKENS = "source.cluster.sasl.oauthbearer.token.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JDBC = {"connector.class": "JdbcSource", "mode": "bulk", "topic.prefix": "t-"}
URL = "connection.url"
HTTP = {"connector.class": "HttpSource", "topic": "t"}

#: A report, the config, and the setting that is rejected.
REPORTS = {
    # Kafka Connect: a login module that looks objects up by JNDI
    "CVE-2023-25194": (
        {**KAFKA, JAAS: "com.sun.security.auth.module.JndiLoginModule required;"},
        JAAS,
    ),
    # Kafka: a login module that reads LDAP
    "CVE-2025-27818": (
        {**KAFKA, JAAS: "com.sun.security.auth.module.LdapLoginModule required;"},
        JAAS,
    ),
    # Kafka: a token endpoint that is a file, or an internal host
    "CVE-2025-27817 file": (
        {**KAFKA, **OAUTH, JAAS: f"{MODULE} required;", TOKENS: "file:///etc/passwd"},
        TOKENS,
    ),
    "CVE-2025-27817 host": (
        {**KAFKA, **OAUTH, JAAS: f"{MODULE} required;", TOKENS: "https://169.254.169.254/token"},
        TOKENS,
    ),
    # Kafka clients: a connector config that brings its config providers
    "CVE-2024-31141": (
        {
            **KAFKA,
            "config.providers": "f",
            "config.providers.f.class": "FileConfigProvider",
        },
        "config.providers",
    ),
    # PostgreSQL's JDBC driver: classes and files in URL parameters
    "CVE-2022-21724": (
        {**JDBC, URL: "jdbc:postgresql://db/x?socketFactory=org.example.Evil&socketFactoryArg=a"},
        URL,
    ),
    "CVE-2022-26520": ({**JDBC, URL: "jdbc:postgresql://db/x?loggerFile=/srv/app.jsp"}, URL),
    # MySQL's JDBC driver: deserialization, and files of the client
    "CVE-2023-31058": (
        {**JDBC, URL: "jdbc:mysql://db/x?autoDeserialize=true&queryInterceptors=a.B"},
        URL,
    ),
    "CVE-2024-27082": (
        {**JDBC, URL: "jdbc:mysql://db/x?allowLoadLocalInfile=true&allowUrlInLocalInfile=true"},
        URL,
    ),
    # SQLite's JDBC driver: a library that a URL names
    "CVE-2023-32697": (
        {**JDBC, URL: "jdbc:sqlite::resource:http://169.254.169.254/evil.db"},
        URL,
    ),
    # integration tools whose HTTP connectors read a cloud's credentials
    "metadata service": (
        {**HTTP, "http.url": "http://169.254.169.254/latest/meta-data"},
        "http.url",
    ),
    "metadata service in IPv6": (
        {**HTTP, "http.url": "http://[::ffff:a9fe:a9fe]/latest/meta-data"},
        "http.url",
    ),
    # file connectors that leave their directory
    "path traversal": (
        {"connector.class": "FileStreamSource", "topic": "t", "file": "/files/../etc/passwd"},
        "file",
    ),
}


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a worker's engine."""
    monkeypatch.setenv(ROOTS_VARIABLE, "/files")
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)


@pytest.mark.parametrize("report", REPORTS)
def test_a_public_attack_is_rejected_by_its_setting(report: str, tmp_path: Path) -> None:
    config, setting = REPORTS[report]
    kind = PluginRegistry().find(config["connector.class"])
    values = validate_config(kind, {"name": "a", **config}, use_systems=False)
    errors = {each.key.name: each.errors for each in values if each.errors}
    if setting == "config.providers":  # it is rejected where placeholders are resolved
        faults = ConfigResolver({}).resolve(config, "a").faults
        errors |= {each.field: (each.description,) for each in faults}
        setting = 'config["config.providers"]'
    assert setting in errors
    assert "Traceback" not in str(errors)
    assert list(tmp_path.iterdir()) == []
