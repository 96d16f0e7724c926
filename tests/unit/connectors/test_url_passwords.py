"""Passwords in URLs: refused where a setting of type PASSWORD exists, masked everywhere."""

import pytest

from drover.config.url_passwords import has_url_password
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import parse_config, validate_config
from drover.model.secrets import sounds_secret
from tests.support.offline import offline

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("postgresql://ann:s3cret@db/shop", True),
        ("jdbc:mysql://ann:s%40@db:3306/shop", True),
        ("https://:s3cret@host", True),
        ("http://a, http://ann:s3cret@b", True),
        ("db://ann:${file:/run/secrets/db:password}@host", True),
        ("jdbc:postgresql://db/shop?user=ann&password=s3cret", True),
        ("jdbc:mysql://db/shop?sslPassword=s3cret", True),
        ("https://host/path?PWD=s3cret", True),
        ("jdbc:sqlserver://db;databaseName=x;password=s3cret", True),
        ("postgresql://ann@db/shop", False),
        ("jdbc:postgresql://db:5432/shop?user=ann&password=", False),
        ("https://host:8080/users/a@b", False),
        ("https://host/?next=/a:b@c", False),
        ("https://api.example.com/${topic}?key=${key}", False),
        ("s3://bucket/a:b", False),
        ("SELECT * FROM users WHERE password=1", False),
        ("host:9092,other:9092", False),
        ("x" * 1_000_000, False),
        ("http://" + "a:" * 500_000, False),
        ("://" * 300_000, False),
        ("http://a?" + "?pwd" * 200_000, False),
    ],
)
def test_what_is_a_password_in_a_url(text: str, found: bool) -> None:
    assert has_url_password(text) is found


@pytest.mark.parametrize(
    ("plugin", "setting", "url", "instead"),
    [
        ("JdbcSource", "connection.url", "jdbc:postgresql://a:s3cret@db/x", "connection.password"),
        ("JdbcSink", "connection.url", "mysql://db/x?password=s3cret", "connection.password"),
        ("IcebergSink", "iceberg.catalog.uri", "https://a:s3cret@h", "iceberg.catalog.password"),
        (
            "IcebergSink",
            "iceberg.catalog.uri",
            "https://h?password=s3cret",
            "iceberg.catalog.password",
        ),
        (
            *("IcebergSink", "iceberg.catalog.oauth2-server-uri", "https://a:s3cret@h"),
            "iceberg.catalog.password",
        ),
        ("FilesSource", "store.url", "http://a:s3cret@minio:9000", "aws.secret.access.key"),
        ("FilesSink", "store.url", "http://minio:9000?password=s3cret", "aws.secret.access.key"),
        ("DeltaSink", "store.url", "http://a:s3cret@minio:9000", "aws.secret.access.key"),
        ("HttpSource", "http.url", "https://h/?password=s3cret", "http.basic.password"),
        ("HttpSink", "http.url", "https://a:s3cret@h/", "http.authorization.type=basic"),
        ("HttpSource", "oauth2.access.token.url", "https://h/?pwd=s3cret", "oauth2.client.secret"),
        (
            "KafkaSource",
            "source.cluster.sasl.oauthbearer.token.endpoint.url",
            "https://a:s3cret@h",
            "source.cluster.sasl.oauthbearer.client.secret",
        ),
        (
            *("DatagenSource", "value.converter.bearer.auth.issuer.endpoint.url"),
            *("https://a:s3cret@h", "value.converter.bearer.auth.token"),
        ),
        (
            *("DatagenSource", "value.converter.schema.registry.url", "https://a:s3cret@h"),
            "basic.auth.user.info",
        ),
    ],
)
def test_a_url_with_a_password_is_refused(
    plugin: str, setting: str, url: str, instead: str
) -> None:
    kind = offline(PluginRegistry().find(plugin))
    raw = {
        "name": "a",
        "connector.class": plugin,
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": "http://127.0.0.1:1",
        setting: url,
    }
    (fault,) = [
        each.description for each in parse_config(kind, raw).violations if each.field == setting
    ]
    assert "password" in fault
    assert instead in fault
    assert SECRET not in fault
    (value,) = [each for each in validate_config(kind, raw) if each.key.name == setting]
    assert fault in value.errors


def test_headers_are_secrets() -> None:
    for plugin in ("HttpSource", "HttpSink"):
        kind = PluginRegistry().find(plugin)
        (key,) = [each for each in kind.config_def() if each.name == "http.headers.additional"]
        assert key.type == "PASSWORD"
    assert sounds_secret("iceberg.catalog.header.X-Custom")
    assert sounds_secret("http.headers.authorization")
    assert not sounds_secret("header.converter")
    assert not sounds_secret("http.header.converter")
