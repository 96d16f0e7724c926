"""Rules of the mirror that need no cluster: logins, and the partitions of each task."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from drover.connector import Password, RetriableError
from drover.connector.settings import parse_config, validate_config
from drover.connectors.kafka.cluster import ReservedError, client_settings
from drover.connectors.kafka.java_settings import librdkafka_settings
from drover.connectors.kafka.settings import is_wanted
from drover.connectors.kafka.settings import target_of as target_name
from drover.connectors.kafka.sink import KafkaSink, target_of
from drover.connectors.kafka.source import (
    KafkaSource,
    consumer_of,
    parsed_places,
    partitions_of,
    places_text,
    share_of,
    warn_of_cycles,
)
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


def test_a_new_partition_changes_the_config_of_one_task() -> None:
    before = {"np-big": 4, "np-small": 1}
    after = {"np-big": 4, "np-small": 2, "np-new": 1}
    changed = [
        index for index in range(3) if places_text(before, index, 3) != places_text(after, index, 3)
    ]
    assert changed == sorted({share_of("np-small", 1, 3), share_of("np-new", 0, 3)})
    assert len(changed) < 3
    places = [parsed_places(places_text(after, index, 3)) for index in range(3)]
    assert sorted(place for each in places for place in each) == sorted(
        (topic, partition) for topic, count in after.items() for partition in range(count)
    )
    assert parsed_places(places_text({}, 0, 1)) == []


def copied(topics: Sequence[str], *, in_own_cluster: bool = False, **changed: str) -> list[str]:
    """The names of the copies of the topics of cluster b that are copied to cluster a."""
    names = {"source.cluster.alias": "b", "target.cluster.alias": "a"}
    given = {key.replace("_", "."): value for key, value in changed.items()}
    config = parse_config(KafkaSource, {**SOURCE, **names, **given}, use_systems=False).values
    return [
        target_name(each, config)
        for each in topics
        if is_wanted(each, config, in_own_cluster=in_own_cluster)
    ]


@pytest.mark.parametrize(
    ("topic", "is_copied"),
    [
        ("orders", True),
        ("a.orders", False),
        ("c.a.orders", False),  # a ring of three clusters
        ("d.c.a.orders", False),
        ("c.orders", True),
        ("b.invoices", True),  # a topic that users of cluster b named so
        ("orders.a", True),  # only the parts before a separator are clusters
        ("ab.orders", True),
        ("heartbeats", True),
        ("a.heartbeats", False),
        ("a.checkpoints.internal", False),
        ("mm2-offset-syncs.a.internal", False),
        ("__consumer_offsets", False),
        (".hidden", False),
        ("connect-internal", False),
    ],
)
def test_copies_that_came_from_the_target_are_not_copied_back(topic: str, is_copied: bool) -> None:
    assert copied([topic], topics_exclude="") == ([f"b.{topic}"] if is_copied else [])


def test_cycles_are_found_with_other_separators_and_policies() -> None:
    topics = ["a_orders", "c_a_orders", "a.orders", "orders_a"]
    assert copied(topics, replication_policy_separator="_") == ["b_a.orders", "b_orders_a"]
    topics = ["a--orders", "a-orders"]
    assert copied(topics, replication_policy_separator="--") == ["b--a-orders"]
    topics = ["a.orders", "orders", "heartbeats", "a.heartbeats"]
    copies = copied(topics, replication_policy_class="IdentityReplicationPolicy")
    assert copies == ["a.orders", "orders", "b.heartbeats"]


def test_two_aliases_of_one_cluster_copy_each_topic_once() -> None:
    topics = ["orders", "b.orders", "c.b.orders"]
    assert copied(topics, in_own_cluster=True) == ["b.orders"]
    assert copied(topics) == ["b.orders", "b.b.orders", "b.c.b.orders"]


def test_a_mirror_without_the_alias_of_its_target_warns_of_cycles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = parse_config(KafkaSource, SOURCE, use_systems=False).values
    for topics, is_set, warned in (
        (["orders", "a.orders"], False, True),
        (["orders", "a.orders"], True, False),
        (["orders", "a.invoices", "a"], False, False),
    ):
        caplog.clear()
        warn_of_cycles(topics, config, is_set=is_set)
        assert ("set target.cluster.alias to the alias a" in caplog.text) is warned


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


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": "näme"}, "name"),
        ({"name": "näme", "offsets.group.id": "copies"}, None),
        ({"offsets.group.id": "日本"}, "offsets.group.id"),
        ({"offsets.group.id": "a\nb"}, "offsets.group.id"),
        ({"offsets.group.id": "a b"}, None),
    ],
)
def test_a_sinks_group_has_to_be_one_that_the_client_can_commit_to(
    changed: dict[str, str], field: str | None
) -> None:
    found = validate_config(KafkaSink, {**SINK, **changed}, use_systems=False)
    assert [each.key.name for each in found if each.errors] == ([field] if field else [])


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
