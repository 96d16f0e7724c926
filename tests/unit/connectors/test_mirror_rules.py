"""Rules of the mirror that need no cluster: logins, and the partitions of each task."""

from dataclasses import replace
from typing import Any

import pytest

from drover.connector import Password, RetriableError
from drover.connector.settings import parse_config, validate_config
from drover.connectors.kafka.cluster import ReservedError, client_settings
from drover.connectors.kafka.java_settings import librdkafka_settings
from drover.connectors.kafka.sink import KafkaSink, target_of
from drover.connectors.kafka.source import KafkaSource, consumer_of, partitions_of, share_of
from drover.connectors.kafka.writer import Target
from drover.policy.client_settings import POLICY_VARIABLE
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import ROOTS_VARIABLE
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE, OwnCluster


def test_a_login_of_java_is_understood() -> None:
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p w;\'x";'
    )
    config: dict[str, Any] = {
        "source.cluster.bootstrap.servers": "a:1",
        "source.cluster.alias": "east",
        "source.cluster.security.protocol": "SASL_SSL",
        "source.cluster.sasl.mechanism": "SCRAM-SHA-256",
        "source.cluster.sasl.jaas.config": Password(login),
        "source.consumer.fetch.min.bytes": "7",
        "source.cluster.fetch.min.bytes": "1",
        "topics": "x",
    }
    assert client_settings(config, "source.cluster.", "source.consumer.") == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "p w;'x",
        "fetch.min.bytes": "7",
    }


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def told(mechanism: str, login: str, **more: str) -> dict[str, str]:
    """The settings of librdkafka for a login module's settings."""
    found = librdkafka_settings(
        {"sasl.mechanism": mechanism, "sasl.jaas.config": login, **more},
    )
    assert found.pop("sasl.mechanisms") == mechanism
    return found


@pytest.mark.parametrize(
    ("mechanism", "login", "expected"),
    [
        ("PLAIN", f"{PLAIN} username=me password=pw;", ("me", "pw")),
        ("PLAIN", f"{PLAIN}\n  username = 'me'\n  password='a\\'b \"';\n", ("me", "a'b \"")),
        ("SCRAM-SHA-512", f'{SCRAM} username="me" password="a\\"b\\\\=;c";', ("me", 'a"b\\=;c')),
    ],
)
def test_users_and_passwords_are_read_as_java_reads_them(
    mechanism: str, login: str, expected: tuple[str, str]
) -> None:
    assert told(mechanism, login) == dict(
        zip(("sasl.username", "sasl.password"), expected, strict=True)
    )


def test_a_client_of_an_identity_provider_is_taken_over() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://id/token"}
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    login = f'{OAUTH} clientId="me" clientSecret="s" scope="kafka" extension_a="1" extension_b="2";'
    expected = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
        **url,
    }
    extensions = {"sasl.oauthbearer.extensions": "a=1,b=2"}
    told_by_options = told(
        "OAUTHBEARER", login, **url, **{"sasl.login.callback.handler.class": handler}
    )
    assert told_by_options == {**expected, **extensions}
    named = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert told("OAUTHBEARER", f"{OAUTH};", **url, **named) == expected
    own = {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=me"}
    assert librdkafka_settings(own) == own


@pytest.mark.parametrize(
    ("mechanism", "login", "said"),
    [
        ("PLAIN", f"{PLAIN} username=me;", "a username and a password"),
        ("PLAIN", f"{PLAIN} username=me password=hidden", "must be: a login module"),
        ("PLAIN", f'{PLAIN} username=me password="hidden;', "must be one login"),
        ("PLAIN", f"{PLAIN} username=me hidden;", "must be one login"),
        ("PLAIN", f"{PLAIN} username=a password=hidden; {PLAIN};", "must be one login"),
        ("PLAIN", f"{SCRAM} username=me password=hidden;", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256", f"{SCRAM} username=a password=hidden tokenauth=true;", "not tokenauth"),
        ("GSSAPI", "com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule,"),
        ("OAUTHBEARER", f"{OAUTH} unsecuredLoginStringClaim_sub=me;", "sasl.oauthbearer.config"),
    ],
)
def test_a_login_that_cannot_be_taken_over_is_told(mechanism: str, login: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        told(mechanism, login)
    assert "hidden" not in str(caught.value)


def test_what_is_said_twice_and_code_of_java_are_told() -> None:
    with pytest.raises(ValueError, match=r"sasl\.username must be omitted"):
        told("PLAIN", f"{PLAIN} username=me password=pw;", **{"sasl.username": "you"})
    handler = {"sasl.login.callback.handler.class": "my.Handler"}
    with pytest.raises(ValueError, match="OAuthBearerLoginCallbackHandler or omitted"):
        told("OAUTHBEARER", f"{OAUTH} clientId=me;", **handler)


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        ({"ssl.truststore.location": "/ca"}, {"ssl.ca.location": "/ca"}),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        ({"ssl.truststore.certificates": "---"}, {"ssl.ca.pem": "---"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k", "ssl.key.password": "x"},
            {
                "ssl.certificate.location": "/k",
                "ssl.key.location": "/k",
                "ssl.key.password": "x",
            },
        ),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            {"ssl.key.pem": "k", "ssl.certificate.pem": "c"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_key_files_of_java_are_taken_over(java: dict[str, str], expected: dict[str, str]) -> None:
    assert librdkafka_settings(java) == expected


def test_the_check_of_clusters_by_java_clients_is_left_out_with_a_warning() -> None:
    name = "source.cluster.metadata.cluster.check.enable"
    raw = {"name": "m", "connector.class": "KafkaSource", name: "true"}
    raw["source.cluster.bootstrap.servers"] = "127.0.0.1:9092"
    (found,) = (each for each in validate_config(KafkaSource, raw) if each.key.name == name)
    assert not found.errors
    assert "librdkafka does not check" in found.warnings[0]
    assert "metadata.cluster.check.enable" not in client_settings(raw, "source.cluster.")


@pytest.mark.parametrize(
    ("java", "said"),
    [
        (
            {"ssl.truststore.location": "/a.jks"},
            r"type JKS is not .* ssl\.truststore\.type=PEM",
        ),
        (
            {"ssl.truststore.location": "/a", "ssl.truststore.type": "PKCS12"},
            "PKCS12 is not",
        ),
        ({"ssl.truststore.location": "/a", "ssl.truststore.password": "x"}, "PEM has none"),
        (
            {"ssl.keystore.location": "/a", "ssl.keystore.type": "JKS"},
            "JKS is not .* openssl",
        ),
        ({"ssl.keystore.location": "/a"}, "JKS is not supported"),
    ],
)
def test_key_files_that_cannot_be_read_are_told(java: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        librdkafka_settings(java)


def test_partitions_are_spread_over_tasks() -> None:
    shares = [share_of("topic", partition, 4) for partition in range(12)]
    assert sorted(shares) == sorted([0, 1, 2, 3] * 3)
    assert share_of("topic", 5, 1) == 0


SOURCE = {
    "name": "a-x",
    "connector.class": "KafkaSource",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
}
SINK = {
    "name": "a-x",
    "connector.class": "KafkaSink",
    "topics": "a",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
}
#: Settings of librdkafka that load code, run commands, read files or call servers.
ATTACKS = {
    "plugin.library.paths": "./evil",
    "ssl.engine.location": "./evil.so",
    "ssl.providers": "evil",
    "sasl.kerberos.kinit.cmd": "id > pwned",
    "ssl.certificate.location": "/certs/service.pem",
    "ssl.keystore.location": "/certs/service.p12",
    "sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/token",
    "transactional.id": "drover-groups-drover-0",
}


@pytest.mark.parametrize("policy", ["none", "allowlist", "all"])
@pytest.mark.parametrize("prefix", ["source.cluster.", "source.consumer."])
def test_a_source_rejects_dangerous_client_settings_all_at_once(
    prefix: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POLICY_VARIABLE, policy)
    monkeypatch.setenv(ROOTS_VARIABLE, "/files")
    given = {**SOURCE, **{prefix + name: value for name, value in ATTACKS.items()}}
    found = {each.key.name for each in validate_config(KafkaSource, given) if each.errors}
    assert found == {prefix + name for name in ATTACKS}
    with pytest.raises(ValueError, match=f"{prefix}plugin.library.paths names code"):
        consumer_of(parse_config(KafkaSource, given).values, [])


@pytest.mark.parametrize("prefix", ["target.cluster.", "target.producer."])
def test_a_sink_rejects_dangerous_client_settings_all_at_once(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, "/files")
    given = {**SINK, **{prefix + name: value for name, value in ATTACKS.items()}}
    found = {each.key.name for each in validate_config(KafkaSink, given) if each.errors}
    assert found == {prefix + name for name in ATTACKS}
    with pytest.raises(ValueError, match=f"{prefix}plugin.library.paths names code"):
        target_of(parse_config(KafkaSink, given).values, "a-x")


def test_the_target_of_translated_groups_is_checked_as_well() -> None:
    given = {
        **SOURCE,
        "sync.group.offsets.enabled": "true",
        "target.cluster.bootstrap.servers": "127.0.0.1:1",
        "target.cluster.plugin.library.paths": "./evil",
    }
    (value,) = [each for each in validate_config(KafkaSource, given) if each.errors]
    assert value.key.name == "target.cluster.plugin.library.paths"


OWN = OwnCluster("own", "workers", frozenset(("drover-configs",)))


def target(**changed: str) -> Target:
    return target_of(parse_config(KafkaSink, {**SINK, **changed}).values, "a-x")


def test_nothing_is_reserved_unless_drover_runs_on_that_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"topic.format": "drover-${topic}", "offsets.group.id": "connect-b"}
    target(**given).check_topic("own", "configs")
    monkeypatch.setenv(OWN_CLUSTER_VARIABLE, OWN.encoded())
    found = target(**given)
    found.check_topic("other", "configs")
    found.check_group("other")
    with pytest.raises(ReservedError, match="the topic drover-configs is internal"):
        found.check_topic("own", "configs")
    with pytest.raises(ReservedError, match="'connect-b' belongs to Drover or another connector"):
        found.check_group("own")
    with pytest.raises(ReservedError, match="transactional id 'connect-cluster-workers-0'"):
        target(**{"offsets.group.id": "connect"}).check_group("own", "cluster-workers", 0)
    target().check_topic("own", "b")
    target().check_group("own", "b", 0)


def test_mirrors_wait_until_the_own_cluster_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_CLUSTER_VARIABLE, replace(OWN, cluster_id="").encoded())
    with pytest.raises(RetriableError, match="have not answered yet"):
        target()
    found = consumer_of(parse_config(KafkaSource, SOURCE).values, [])
    try:
        with pytest.raises(RetriableError, match="have not answered yet"):
            partitions_of(found, parse_config(KafkaSource, SOURCE).values, [])
    finally:
        found.close()


def test_brokers_must_be_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "kafka.example.com:9092")
    (value,) = [each for each in validate_config(KafkaSource, SOURCE) if each.errors]
    assert value.key.name == "source.cluster.bootstrap.servers"
    assert "127.0.0.1:1 is not a host that connectors may call" in value.errors[0]
