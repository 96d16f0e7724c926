"""``drover connector new``: which names it takes, and what it does not touch."""

import ast
import tomllib
from pathlib import Path

import pytest
import yaml

from drover.cli.main import app


def new(*arguments: str) -> int:
    return app(["connector", "new", *arguments])


def test_a_package_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new("Two_parts-in2", "--into", str(tmp_path)) == 0
    folder = tmp_path / "two-parts-in2"
    assert f"wrote {folder}" in capsys.readouterr().out
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "two-parts-in2"
    assert project["entry-points"]["drover.connectors"] == {
        "TwoPartsIn2Source": "two_parts_in2:read_lines",
        "TwoPartsIn2Sink": "two_parts_in2:write_rows",
    }
    for program in folder.glob("*.py"):
        ast.parse(program.read_text())
    (source,) = folder.glob("source.yaml")
    assert yaml.safe_load(source.read_text())["config"]["connector.class"] == "TwoPartsIn2Source"
    assert not [each for each in folder.iterdir() if "$" in each.read_text().replace("$ ", "")]


@pytest.mark.parametrize("name", ["", "2fast", "a b", "../up", "a--b", "class", "x" * 61, "ä"])
def test_a_name_that_cannot_be_a_packages_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert new("--into", str(tmp_path), "--", name) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    assert new("mine", "--into", str(tmp_path)) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["notes"]
