"""Plugins that do not load: what is shown of the reason."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from drover.config import class_registry
from drover.config.class_registry import ClassRegistry
from drover.config.plugin_errors import PluginProblem, shown_error
from drover.transform.transform import Transform

GROUP = "drover.tests.broken"


class OddError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            ModuleNotFoundError("no module 'acme'"),
            "ModuleNotFoundError: no module 'acme'",
        ),
        (
            ImportError("cannot import name 'A' from 'acme' (/opt/my plugins/acme/__init__.py)"),
            "ImportError: cannot import name 'A' from 'acme' (__init__.py)",
        ),
        (
            ImportError("/srv/lib/site-packages/acme/core.so: undefined symbol: foo"),
            "ImportError: core.so: undefined symbol: foo",
        ),
        (ImportError("cannot open C:\\acme\\core.dll"), "ImportError: cannot open core.dll"),
        (
            ImportError("no licence at https://me:s3cret@acme.example/key"),
            "ImportError: no licence at https://acme.example/key",
        ),
        (ImportError("two\nlines\n"), "ImportError: two lines"),
        (SyntaxError("invalid syntax", ("/opt/a.py", 3, 1, "x = 's3cret'")), "(a.py, line 3)"),
        (RuntimeError("password s3cret"), "RuntimeError: its text is in the worker's log"),
        (OSError("/etc/s3cret"), "OSError: its text is in the worker's log"),
        (KeyError("S3CRET"), "KeyError: its text is in the worker's log"),
        (SystemExit("s3cret"), "SystemExit: its text is in the worker's log"),
        (OddError(), "OddError: its text is in the worker's log"),
    ],
)
def test_a_reason_has_no_folders_and_no_data(error: BaseException, shown: str) -> None:
    found = shown_error(error)
    assert found == shown or (isinstance(error, SyntaxError) and found.endswith(shown))
    assert "s3cret" not in found.lower()


def test_a_long_reason_is_cut() -> None:
    assert len(shown_error(ImportError("x" * 10_000))) == 300


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> ClassRegistry[Transform]:
    points = [
        EntryPoint("Gone", "missing_module:Gone", GROUP),
        EntryPoint("Lost", f"{__name__}:Lost", GROUP),
    ]
    monkeypatch.setattr(class_registry, "entry_points", lambda group: points)
    return ClassRegistry("transform", GROUP, list)


def test_transforms_that_do_not_load_are_problems(broken: ClassRegistry[Transform]) -> None:
    assert broken.problems() == []
    assert list(broken) == []
    first, second = broken.problems()
    assert first.entry_point == "Gone = missing_module:Gone"
    assert first.shown == "ModuleNotFoundError: No module named 'missing_module'"
    assert second.shown.startswith("AttributeError: module")


def test_a_problem_names_its_package(tmp_path: Path) -> None:
    from importlib.metadata import Distribution

    folder = tmp_path / "acme_connectors-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-connectors\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\nAcme = acme.source:Acme\n")
    (found,) = Distribution.discover(path=[str(tmp_path)])
    (point,) = found.entry_points
    problem = PluginProblem.of(point, ImportError("no"))
    assert problem.package == "acme-connectors 1.2"
    assert problem.entry_point == "Acme = acme.source:Acme"
    assert PluginProblem.of(EntryPoint("A", "b:C", GROUP), ImportError("no")).package == ""
