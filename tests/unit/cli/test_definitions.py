import io
import sys
from pathlib import Path

import pytest

from drover.cli.definitions import (
    MAX_BYTES,
    Definition,
    DefinitionError,
    parse_definition,
    read_definition,
)

CONFIG = {"connector.class": "FileStreamSource", "tasks.max": "2", "batch": "1.50", "on": "true"}


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (
            "c.json",
            '{"name": "a", "config": {"connector.class": "FileStreamSource", "tasks.max": 2,'
            ' "batch": 1.50, "on": true}}',
        ),
        (
            "c.yaml",
            "name: a\nconfig:\n  connector.class: FileStreamSource\n  tasks.max: 2\n"
            "  batch: 1.50\n  on: True\n",
        ),
        (
            "standard input",
            '{"name": "a", "config": {"connector.class": "FileStreamSource", "tasks.max": "2",'
            ' "batch": "1.50", "on": "true"}}',
        ),
    ],
)
def test_json_and_yaml_say_the_same(label: str, text: str) -> None:
    assert parse_definition(text, label) == Definition("a", CONFIG)


def test_a_flat_config_holds_its_name() -> None:
    text = '{"name": "a", "connector.class": "X", "config": "a setting of X"}'
    assert parse_definition(text, "c.json") == Definition(
        "a", {"name": "a", "connector.class": "X", "config": "a setting of X"}
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"name": " a\u00a0", "config": {}}',
        '{"config": {"name": "a\\t"}}',
        '{"name": " a ", "connector.class": "X"}',
    ],
)
def test_a_name_has_no_white_space_around_it(text: str) -> None:
    definition = parse_definition(text, "c.json")
    assert isinstance(definition, Definition)
    assert definition.name == "a"


def test_yaml_words_stay_as_they_are_written() -> None:
    text = "name: a\nconnector.class: X\ncountry: no\nday: 2013-01-01\nmode: 0644\nempty: ''\n"
    config = parse_definition(text, "c.yml").config
    assert dict(config) == {
        "name": "a",
        "connector.class": "X",
        "country": "no",
        "day": "2013-01-01",
        "mode": "0644",
        "empty": "",
    }


def test_numbers_keep_their_digits() -> None:
    text = '{"connector.class": "X", "big": 123456789012345678901234567890, "e": 1e3}'
    config = parse_definition(text, "c.json").config
    assert (config["big"], config["e"]) == ("123456789012345678901234567890", "1e3")


def test_the_initial_state_is_read() -> None:
    text = '{"name": "a", "config": {}, "initial_state": "PAUSED"}'
    assert parse_definition(text, "c.json").initial_state == "PAUSED"


@pytest.mark.parametrize(
    ("label", "text", "message"),
    [
        ("c.json", '["a"]', "c.json holds a list"),
        ("c.json", '"a"', "c.json holds a single value"),
        ("c.json", "null", "c.json holds nothing"),
        ("c.json", "", "c.json:1:1: not JSON"),
        ("c.json", '{"a": 1,\n "b" 2}', "c.json:2:6: not JSON"),
        ("c.json", '{"a": 1} x', "c.json:1:10: not JSON: Extra data"),
        ("c.json", '{"a": 1, "b": 2, "a": 3}', 'c.json: the key "a" is duplicated'),
        ("c.json", '{"a": NaN}', "c.json: NaN is not JSON"),
        ("c.json", '{"a": null}', 'c.json: "a" has no value'),
        ("c.json", '{"connector.class": null}', "numbers, booleans and classes reject it"),
        ("c.json", '{"config": {"a": ["x"]}}', 'c.json: "config.a" is a list'),
        ("c.json", '{"config": {"a": {"x": 1}}}', 'c.json: "config.a" is an object'),
        ("c.json", '{"config": ["a"]}', 'c.json: "config" is a list; it must be an object'),
        ("c.json", '{"config": {}, "topic": "t"}', 'unknown key "topic" beside "config"'),
        ("c.json", "[" * 100_000, "c.json: nested too deeply"),
        ("c.yaml", "- a\n- b\n", "c.yaml holds a list"),
        ("c.yaml", "", "c.yaml holds nothing"),
        ("c.yaml", "a: 1\nb: [\n", "c.yaml:3:1: not YAML"),
        ("c.yaml", "a: 1\n\tb: 2\n", "c.yaml:2:1: not YAML"),
        ("c.yaml", "a: 1\nb: 2\na: 3\n", 'c.yaml:3:1: the key "a" is duplicated'),
        ("c.yaml", "a: 1\n---\nb: 2\n", "c.yaml holds 2 documents"),
        ("c.yaml", "a:\n", 'c.yaml: "a" has no value'),
        ("c.yaml", "[a]: b\n", "c.yaml:1:1: a key must be a string"),
        ("c.yaml", "a: \x01\n", "c.yaml: not YAML"),
        ("c.yaml", "a: *nowhere\n", "c.yaml:1:4: not YAML"),
        ("c.yaml", "[" * 50_000, "c.yaml: nested too deeply"),
    ],
)
def test_a_malformed_definition_names_the_file_and_the_place(
    label: str, text: str, message: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_definition(text, label)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"cannot read .*/none.json: No such file"):
        read_definition(str(tmp_path / "none.json"))
    with pytest.raises(DefinitionError, match=r"cannot read .*: Is a directory"):
        read_definition(str(tmp_path))
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(DefinitionError, match=r"latin.json is not UTF-8: byte 7"):
        read_definition(str(tmp_path / "latin.json"))
    (tmp_path / "big.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(DefinitionError, match=r"big.json is larger than"):
        read_definition(str(tmp_path / "big.json"))


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b'\xef\xbb\xbf{"name": "a"}')
    assert read_definition(str(tmp_path / "c.json")).name == "a"


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: a\n")))
    assert read_definition("-") == Definition("a", {"name": "a"})
