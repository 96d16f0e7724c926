"""Built-in connectors use only the public API: every author has the same means."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import python_files, text_of

#: The modules of Drover that authors may import, besides their own package's.
PUBLIC = ("drover.connector", "drover.connector.records")
#: The worker's policies, which hold for connectors of all authors.
POLICIES = "drover.policy."
#: Adapts Java plugins to Drover's connectors; no example for authors.
JAVA = ("drover.java_plugins.", "drover.connector.")
CONNECTORS = [
    path
    for path in python_files("shared", "examples")
    if path.as_posix().startswith(("shared/drover/connectors/", "examples/"))
    and not path.as_posix().startswith("examples/flights/")  # the job of `make run`
    # no connectors, but the adapters between the API and the host of Java plugins
    and not path.as_posix().startswith("shared/drover/connectors/java/")
]


def private_imports(program: str) -> Iterator[str]:
    """The non-public modules of Drover that a program imports."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their package"
            found = [node.module or ""]
        else:
            continue
        for name in found:
            if name in PUBLIC or name.split(".")[0] not in ("drover", "drover_worker"):
                continue
            if not f"{name}.".startswith(("drover.connectors.", POLICIES)):
                yield name


@pytest.mark.parametrize("path", CONNECTORS, ids=str)
def test_a_connector_imports_the_api_and_nothing_else_of_drover(path: Path) -> None:
    allowed = ["drover.testing"] if path.name.startswith("test_") else []
    found = [each for each in private_imports(text_of(path) or "") if each not in allowed]
    if "java" in path.parts:
        found = [each for each in found if not each.startswith(JAVA)]
    assert found == []


def test_all_connectors_are_looked_at() -> None:
    assert len(CONNECTORS) > 40
    assert list(private_imports("def f():\n    from drover.record.batch import KEY")) == [
        "drover.record.batch"
    ]
