"""requirements.lock: complete, hashed, and the only source of what is installed."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from deploy import lock
from deploy.needed import entries, needed, requirements
from tests.support.repository import REPOSITORY

LOCK = (REPOSITORY / lock.LOCK).read_text(encoding="utf-8")
PINS = lock.pins((REPOSITORY / lock.CONSTRAINTS).read_text(encoding="utf-8"))
_HEAD = re.compile(r"^([\w.-]+)==(\S+)(?: ; (.*?))? \\$", re.MULTILINE)
_NAME = re.compile(r"[\w.-]+")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_has_every_tested_version_with_digests() -> None:
    assert {name: version for name, version, _ in _HEAD.findall(LOCK)} == PINS
    for name, entry in entries(LOCK).items():
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\)?$", entry.text, re.MULTILINE)
        assert hashes, name
        assert len(hashes) == entry.text.count("--hash="), name


def test_it_has_everything_that_the_projects_ask_for() -> None:
    found = entries(LOCK)
    for path in (REPOSITORY / "pyproject.toml", *REPOSITORY.glob("s*/**/pyproject.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        project = content.get("project", {})
        groups = [
            project.get("dependencies", []),
            *project.get("optional-dependencies", {}).values(),
            *content.get("dependency-groups", {}).values(),
            content.get("build-system", {}).get("requires", []),
        ]
        for requirement in (each for group in groups for each in group):
            match = _NAME.match(requirement)
            assert match is not None
            name = normalized(match[0])
            assert name in found or name.startswith("drover-"), f"{requirement} in {path}"


def test_its_dependencies_are_those_of_the_installed_versions() -> None:
    known = {normalized(name): version for name, version in PINS.items()}
    installed = {normalized(each.name): each.version for each in distributions()}
    for name, entry in entries(LOCK).items():
        if installed.get(name) == known[name]:
            listed = {f"{extra}: {' '.join(names)}" for extra, names in entry.needs.items()}
            assert listed == set(lock.needs(name, known)), name


def test_an_image_gets_what_it_needs_and_no_tools() -> None:
    shared = REPOSITORY / "shared/pyproject.toml"
    service = needed(LOCK, requirements(str(shared)))
    worker = needed(LOCK, requirements(f"{shared}[spark,lakehouse,avro]"))
    names = {part: {name for name, _, _ in _HEAD.findall(part)} for part in (service, worker)}
    assert {"grpcio", "PyJWT", "cryptography", "cffi", "pydantic_core"} <= names[service]
    assert not names[service] & {"pyspark", "pytest", "mypy", "ruff", "hypothesis"}
    assert names[service] < names[worker]
    assert {"pyspark", "py4j", "pyiceberg-core", "Authlib", "psycopg-binary"} <= names[worker]
    assert not names[worker] & {"duckdb", "pytest", "mypy", "ruff"}
    with pytest.raises(KeyError):
        needed(LOCK, ["no-such-package"])


@pytest.mark.parametrize("file", ["deploy/service.Dockerfile", "deploy/worker.Dockerfile"])
def test_nothing_is_installed_without_digests(file: str) -> None:
    text = (REPOSITORY / file).read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip (?:--python \S+ )?install.*?(?=&&|\n|$)", text)
    assert installs
    for each in installs:
        own_wheels = "--no-index" in each and "--no-deps" in each
        assert own_wheels or "--require-hashes" in each, each
    assert not re.search(r"-m build (?!--wheel --no-isolation)", text)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert "pip install" not in makefile


def test_the_digests_are_those_of_the_index(tmp_path: Path) -> None:
    files = {
        "sortedcontainers-2.4.0-py2.py3-none-any.whl": b"wheel",
        "sortedcontainers-2.4.0.tar.gz": b"source",
        "sortedcontainers-2.3.0.tar.gz": b"older",
        "sortedcontainers-2.4.0-py2.7.egg": b"egg",
    }
    page = tmp_path / "simple" / "sortedcontainers"
    page.mkdir(parents=True)
    links = [
        f'<a href="{name}#sha256={hashlib.sha256(content).hexdigest()}">{name}</a>'
        for name, content in files.items()
    ]
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    (tmp_path / "constraints.txt").write_text("# a comment\nsortedcontainers==2.4.0\n")
    (tmp_path / "pyproject.toml").write_text(
        "[dependency-groups]\ndev = [\"sortedcontainers; python_version > '3'\"]\n"
    )
    assert written(tmp_path) == ""
    text = (tmp_path / lock.LOCK).read_text()
    (head,) = _HEAD.findall(text)
    assert head == ("sortedcontainers", "2.4.0", 'python_version > "3"')
    wanted = sorted(hashlib.sha256(each).hexdigest() for each in (b"wheel", b"source"))
    assert re.findall(r"sha256:(\w+)", text) == wanted
    (tmp_path / "constraints.txt").write_text("sortedcontainers==2.3.0\n")
    assert "2.4.0 is installed, not 2.3.0: run make setup" in written(tmp_path)


def written(directory: Path) -> str:
    """The error of the program that writes the lock of a directory with a package index."""
    index = (directory / "simple").as_uri()
    ended = subprocess.run(
        [sys.executable, "-m", "deploy.lock", str(directory)],
        cwd=REPOSITORY,
        env={**os.environ, "PIP_INDEX_URL": index},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode == 0) == (not ended.stderr)
    return ended.stderr
