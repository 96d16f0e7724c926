"""The files of a move: definitions, secrets, commands, and the report."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.cli.definitions import parse_definition
from drover.config.properties import parse_properties
from drover.migrate.checks import Finished, Report, Verdict
from drover.migrate.files import connector_id
from drover.migrate.read import OldConnector
from drover.migrate.report import (
    SCHEMA,
    definition_text,
    document_of,
    markdown_of,
    rows_of,
    secrets_text,
)
from drover.migrate.scripts import Access, scripts_of
from drover.migrate.secrets import placeholder
from drover.migrate.worker_properties import WorkerProperties
from tests.support.kafka_connect_api import FILE_SOURCE, ScriptedConnect
from tests.support.repository import REPOSITORY
from tests.unit.migrate.test_checks import SINK, SOURCE, WORKER

Check = Callable[..., Report]

ODD_NAMES = [
    *("a b", "../../etc/x", "$(touch hacked)", "`id`", "'; rm -rf x; '", "-rf", ".hidden"),
    *("<img src=x onerror=alert(1)>", "a|b", "日本", "x" * 249, "a\u202eb", 'quo"te', "a%2Fb"),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_file_name_is_harmless_and_unique(name: str) -> None:
    found = connector_id(name)
    assert found.isascii()
    assert not set(found) & set("/\\ \n'\"$`<>|;:")
    assert not found.startswith((".", "-"))
    assert len(found) < 200
    assert len({connector_id(each) for each in ODD_NAMES}) == len(ODD_NAMES)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda text: text not in ("config",)),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        max_size=6,
    )
)
def test_a_written_definition_is_read_back_unchanged(config: dict[str, str]) -> None:
    config = {**{k.encode(errors="replace").decode(): v for k, v in config.items()}, "a": "007"}
    old = OldConnector(name="n", config={})
    text = definition_text(Finished(old=old, verdict=Verdict.UNCHANGED, definition=config))
    found = parse_definition(text, "n.yaml")
    assert (found.name, found.initial_state, dict(found.config)) == ("n", "STOPPED", config)


def test_the_file_of_secrets_has_the_keys_of_the_placeholders(
    script: ScriptedConnect, check: Check
) -> None:
    script.add("a b:c", {**SOURCE, "my.password": "pa55-word"})
    report = check()
    (secret,) = report.connectors[0].secrets
    text = secrets_text(report)
    assert parse_properties(text) == {secret.key: ""}
    assert "pa55" not in text
    assert secret.text == f"${{file:/move/secrets.properties:{secret.key}}}"
    assert ":" not in secret.key


def test_a_key_has_no_character_that_ends_a_placeholder() -> None:
    assert placeholder("x", "a:b}c=d", "/f").key == "x.a%3Ab%7Dc%3Dd"


def _scripts(report: Report, access: Access | None = None) -> dict[str, str]:
    return dict(scripts_of(report, access or Access()))


@pytest.mark.parametrize("name", [*ODD_NAMES, "two\nlines", "a\rb"])
def test_the_commands_are_one_call_for_each_connector(
    name: str, script: ScriptedConnect, check: Check, tmp_path: Path
) -> None:
    script.add(name, SOURCE)
    report = check(properties=WORKER)
    for file, text in _scripts(report).items():
        path = tmp_path / file
        # the functions are replaced, and print their first argument
        calls = [line for line in text.splitlines() if line.startswith(("move ", "give_back "))]
        can_move = report.connectors[0].can_move and name.isprintable()
        is_moved = can_move and file in ("to-drover.sh", "back.sh")
        assert len(calls) == is_moved
        body = 'move() { printf \'%s\\n\' "$1"; }\ngive_back() { move "$@"; }\n'
        path.write_text(body + "\n".join(calls))
        bash = shutil.which("bash") or "bash"
        ran = subprocess.run([bash, path], capture_output=True, cwd=tmp_path, check=True, text=True)
        assert ran.stdout == (f"{name}\n" if is_moved else "")
        subprocess.run([bash, "-n"], input=text, check=True, text=True)
    assert {each.name for each in tmp_path.iterdir()} == {*_scripts(report)}


def test_a_connector_that_cannot_move_is_a_comment(script: ScriptedConnect, check: Check) -> None:
    script.add("gone", {"connector.class": "com.example.Gone\nrm -rf /"})
    script.add("in", SOURCE)
    text = _scripts(check())["to-drover.sh"]
    calls = [line for line in text.splitlines() if line.startswith("move ")]
    assert calls == ["move in in in source RUNNING"]
    assert "# not moved: gone" in text
    assert not [line for line in text.splitlines() if line.startswith("rm ")]


def test_credentials_are_read_from_their_files(script: ScriptedConnect, check: Check) -> None:
    script.add("in", SOURCE)
    report = check()
    with_user = _scripts(report, Access(user='a"b', password_file="/run/p w"))["to-drover.sh"]
    assert "$(cat '/run/p w')" in with_user
    with_token = _scripts(report, Access(token_file="/run/t", ca_file="/ca.pem"))["back.sh"]
    assert "Bearer %s" in with_token
    assert "$(cat /run/t)" in with_token
    assert "--cacert /ca.pem" in with_token


def test_drover_gets_the_settings_of_the_worker(script: ScriptedConnect, check: Check) -> None:
    script.add("in", SOURCE)
    more = (
        "exactly.once.source.support=enabled\n"
        "value.converter.basic.auth.user.info=me:pa55-word\n"
        'sasl.jaas.config=x password="pa55-word";\nsecurity.protocol=SASL_SSL\n'
        "config.providers=file,vault,plain\n"
        "config.providers.file.class="
        "org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "config.providers.file.param.allowed.paths=/run/secrets\n"
        "config.providers.plain.class="
        "org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "config.providers.vault.class=com.example.VaultConfigProvider\n"
        "config.providers.vault.param.token=pa55-word\n"
        "plugin.path=/usr/share/java,/opt/connectors\n"
    )
    report = check(properties=WORKER + more)
    assert report.worker is not None
    assert report.worker.environment() == {
        "DROVER_STORAGE_URL": "kafka://a:9092,b:9092",
        "DROVER_GROUP_ID": "connect",
        "DROVER_CONFIG_STORAGE_TOPIC": "c",
        "DROVER_OFFSET_STORAGE_TOPIC": "o",
        "DROVER_STATUS_STORAGE_TOPIC": "s",
        "DROVER_PLUGIN_PATH": "/usr/share/java,/opt/connectors",
        "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": "enabled",
        "DROVER_CONVERTERS": '{"key.converter": '
        '"org.apache.kafka.connect.storage.StringConverter", "value.converter": '
        '"org.apache.kafka.connect.json.JsonConverter", '
        '"value.converter.schemas.enable": "false"}',
        "DROVER_CONFIG_PROVIDERS": '{"file": {"class": '
        '"org.apache.kafka.common.config.provider.FileConfigProvider", '
        '"allowed.paths": "/run/secrets"}}',
    }
    by_hand = "\n".join(report.worker.by_hand())
    for each in ("sasl.jaas.config", "basic.auth.user.info", "vault", "plain"):
        assert each in by_hand
    texts = [*_scripts(report).values(), markdown_of(report), json.dumps(document_of(report))]
    assert not [text for text in texts if "pa55" in text]


def test_a_file_that_is_no_workers_properties_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has no group\.id, config\.storage\.topic"):
        WorkerProperties.parsed("f", "bootstrap.servers=a:1\nsecret=pa55")


def test_the_document_has_the_documented_fields(script: ScriptedConnect, check: Check) -> None:
    script.add("in", {**SOURCE, "colour": "red", "a.password": "x" * 8}, task_traces=("E: f",))
    document = document_of(check(), ["report.md"])
    page = (REPOSITORY / "docs" / "migrate.md").read_text(encoding="utf-8")

    def names(value: object, prefix: str = "") -> set[str]:
        if isinstance(value, list):
            return set().union(*(names(each, f"{prefix}[]") for each in value))
        if not isinstance(value, dict):
            return set()
        open_maps = ("worker.environment", "connectors[].topic_creation", "counts")
        found = set()
        for key, each in value.items():
            path = f"{prefix}.{key}" if prefix else key
            found |= {path} | (set() if path in open_maps else names(each, path))
        return found

    assert document["schema"] == SCHEMA
    assert not [each for each in names(document) if f"`{each}`" not in page]
    json.dumps(document)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a|b", "[x](javascript:y)"])
def test_markup_of_the_server_is_text_in_markdown(
    name: str, script: ScriptedConnect, check: Check
) -> None:
    script.add(name, {**SOURCE, "<b>x</b>|`y`": "1"}, task_traces=("E: <script>\u202e",))
    text = markdown_of(check())
    for each in ("<img", "<b>", "<script>", "](javascript", "\u202e"):
        assert each not in text.replace("\\<", "&lt;").replace("\\]", "&rb;")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}


def test_the_rows_have_what_to_do(script: ScriptedConnect, check: Check) -> None:
    script.add("a", SOURCE)
    script.add("b", {**SOURCE, "colour": "red", "size": "1"}, task_traces=("E: f", ""))
    script.add("c", SINK, kind="sink", state="STOPPED", task_traces=())
    rows = rows_of(check())
    assert [row[1] for row in rows] == ["RUNNING", "RUNNING, 1 of 2 tasks failed", "STOPPED"]
    assert rows[0][4:] == ("unchanged", "")
    assert rows[1][5].startswith("colour: ")
    assert rows[1][5].endswith("(and 1 more)")


def test_a_report_hides_its_configs_in_its_text(script: ScriptedConnect, check: Check) -> None:
    script.add("a", {**SOURCE, "x.password": "pa55-word"})
    report = check()
    assert "pa55" not in repr(replace(report))
    assert FILE_SOURCE not in repr(report.connectors[0])
