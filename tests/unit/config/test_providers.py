"""Config providers: which values they return, and which they never expose."""

from pathlib import Path

import pytest

from drover.config.properties import parse_properties
from drover.config.providers import (
    FILE_MAX_BYTES,
    ConfigProviderError,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
    make_provider,
)

ENVIRONMENT = {"DB_USER": "ann", "DB_EMPTY": "", "HOME": "/root", "DROVER_KAFKA_CONFIG": "s3cret"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb = 2 \nc: 3\nd 4\ne\n", {"a": "1", "b": "2 ", "c": "3", "d": "4", "e": ""}),
        ("# a=1\n! b=2\n\n  c=3", {"c": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one \\\n   two\nb=\\\\\nc=3", {"a": "one two", "b": "\\", "c": "3"}),
        ("a\\ b\\=\\:c=d=e", {"a b=:c": "d=e"}),
        ("a=\\t\\n\\u00e4\\x", {"a": "\t\näx"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=pass#word!", {"a": "pass#word!"}),
        ("a=end\\", {"a": "end"}),
        ("a=\\\n# no comment\nb=1", {"a": "# no comment", "b": "1"}),
        ("a\u00a0b=1", {"a\u00a0b": "1"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u00g0", "a=\\ud83d"])
def test_a_malformed_escape_is_an_error_without_the_value(tmp_path: Path, text: str) -> None:
    (tmp_path / "db.properties").write_text(f"password={text}s3cret\n")
    provider = FileConfigProvider({"allowed.paths": str(tmp_path)})
    with pytest.raises(ConfigProviderError, match="is not a properties file: line 1: ") as caught:
        provider.get(str(tmp_path / "db.properties"), ["password"])
    assert "s3cret" not in str(caught.value)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "db.properties").write_text("password=s3cret\nuser=ann\n")
    (secrets / "token").write_text("t0ken\n")
    (tmp_path / "outside").write_text("password=no\n")
    (secrets / "link").symlink_to(tmp_path / "outside")
    return secrets


def test_a_file_gives_the_keys_that_are_asked_for(secrets: Path) -> None:
    provider = FileConfigProvider({"allowed.paths": f"/nowhere,{secrets}"})
    found = provider.get(str(secrets / "db.properties"), ["password", "missing"])
    assert found.values == {"password": "s3cret"}
    assert found.ttl_ms is None


def test_a_directory_gives_files_without_the_newline_at_the_end(secrets: Path) -> None:
    provider = DirectoryConfigProvider({"allowed.paths": str(secrets)})
    assert provider.get(str(secrets), ["token", "missing"]).values == {"token": "t0ken"}


def test_secrets_that_are_mounted_as_links_within_an_allowed_path(secrets: Path) -> None:
    (secrets / "..data").mkdir()
    (secrets / "..data" / "key").write_text("k")
    (secrets / "key").symlink_to("..data/key")
    provider = DirectoryConfigProvider({"allowed.paths": str(secrets)})
    assert provider.get(str(secrets), ["key"]).values == {"key": "k"}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("{secrets}/../outside", "not below"),
        ("{secrets}/link", "not below"),
        ("{secrets}2/x", "not below"),
        ("db.properties", "not absolute"),
        ("", "not absolute"),
        ("{secrets}/missing", "No such file"),
        ("{secrets}", "Is a directory"),
        ("{secrets}/big", "larger than"),
        ("{secrets}/binary", "not UTF-8"),
    ],
)
def test_files_that_are_not_given_out(secrets: Path, path: str, told: str) -> None:
    (secrets / "big").write_bytes(b"a" * (FILE_MAX_BYTES + 1))
    (secrets / "binary").write_bytes(b"\xff\xfe")
    provider = FileConfigProvider({"allowed.paths": str(secrets)})
    with pytest.raises(ConfigProviderError, match=told):
        provider.get(path.format(secrets=secrets), ["password"])


@pytest.mark.parametrize("key", ["../outside", "link", "", ".", ".."])
def test_a_directory_gives_only_files_that_are_in_it(secrets: Path, key: str) -> None:
    provider = DirectoryConfigProvider({"allowed.paths": str(secrets)})
    with pytest.raises(ConfigProviderError):
        provider.get(str(secrets), [key])
    with pytest.raises(ConfigProviderError, match="not a directory"):
        provider.get(str(secrets / "token"), ["x"])


def test_variables_that_match_as_a_whole_are_given_out() -> None:
    provider = EnvVarConfigProvider({"allowlist.pattern": "DB_.*"}, ENVIRONMENT)
    assert provider.get("", ["DB_USER"]).values == {"DB_USER": "ann"}
    assert provider.get("", ["DB_EMPTY", "DB_MISSING"]).values == {"DB_EMPTY": ""}


@pytest.mark.parametrize("pattern", [".*", "DROVER_.*"])
def test_drovers_own_variables_are_never_given_out(pattern: str) -> None:
    provider = EnvVarConfigProvider({"allowlist.pattern": pattern}, ENVIRONMENT)
    for name in ("DROVER_KAFKA_CONFIG", "drover_kafka_config"):
        with pytest.raises(ConfigProviderError, match="is not allowed"):
            provider.get("", [name])


def test_variables_that_do_not_match_are_not_given_out() -> None:
    provider = EnvVarConfigProvider({"allowlist.pattern": "DB_"}, ENVIRONMENT)
    for name in ("HOME", "DB_USER", ""):
        with pytest.raises(ConfigProviderError, match="is not allowed"):
            provider.get("", [name])
    with pytest.raises(ConfigProviderError, match="no path"):
        provider.get("x", ["DB_USER"])


def test_a_pattern_that_takes_too_long_allows_nothing() -> None:
    provider = EnvVarConfigProvider({"allowlist.pattern": "(a|aa)+(?=x|y)"}, ENVIRONMENT)
    with pytest.raises(ConfigProviderError, match=r"allowlist\.pattern: the pattern"):
        provider.get("", {"a" * 45})


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("file", {}, "allowed.paths is required"),
        ("file", {"allowed.paths": " "}, "allowed.paths is required"),
        ("directory", {"allowed.paths": "secrets"}, "not absolute"),
        ("env", {}, "allowlist.pattern is required"),
        ("env", {"allowlist.pattern": "("}, "not a pattern"),
        ("env", {"allowlist.pattern": ".*", "allowed": "x"}, "allowed is not one of its settings"),
        ("vault", {}, "no config provider is called 'vault'"),
        ("secrets", {"class": "FileConfigProvider"}, "allowed.paths is required"),
    ],
)
def test_providers_that_cannot_be_set_up(name: str, settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigProviderError, match=told):
        make_provider(name, settings)


def test_a_provider_may_be_named_otherwise_and_by_kafkas_class(secrets: Path) -> None:
    kafkas = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    provider = make_provider("mounted", {"class": kafkas, "allowed.paths": str(secrets)})
    assert isinstance(provider, DirectoryConfigProvider)
    assert isinstance(make_provider("env", {"allowlist.pattern": "X"}), EnvVarConfigProvider)
