import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from drover.config import class_registry
from drover.config.class_registry import ClassRegistry
from drover.config.plugin_imports import PluginImportHangsError, PluginImports
from drover.connector import catalogue
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover.transform.transform import Transform

CONNECTOR = """
from drover.connector import ConfigDef, SourceConnector, SourceTask

class Task(SourceTask):
    pass

class Lines(SourceConnector):
    task_class = Task

    @classmethod
    def config_def(cls):
        return ConfigDef()

    def task_configs(self, max_tasks):
        return [{}]
"""
#: Importing ``shapes`` or ``shapes.round`` works; importing the second while another thread
#: executes the first fails, because Python imports a module of a package that is being imported.
RACING = {
    "shapes/__init__.py": "import pause\npause.wait()\nfrom shapes import edges, flat\n",
    "shapes/flat.py": "",
    "shapes/edges.py": "class Edge:\n    pass\n\nfrom shapes.round import Circle\n",
    "shapes/round.py": "from shapes.edges import Edge\n\nclass Circle(Edge):\n    pass\n",
    "pause.py": "import threading\nentered = threading.Event()\nover = threading.Event()\n\n"
    "def wait():\n    entered.set()\n    over.wait(60)\n",
    "first_plugin.py": f"import shapes\n{CONNECTOR}",
    "second_plugin.py": f"import shapes.round\n{CONNECTOR}",
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory on the import path; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


def registry(*modules: str) -> PluginRegistry:
    return PluginRegistry(
        lambda: [EntryPoint(each, f"{each}:Lines", catalogue.GROUP) for each in modules]
    )


def test_connectors_that_import_one_package_at_the_same_time_do_not_disturb_each_other(
    packages: Path,
) -> None:
    write(packages, RACING)
    plugins = registry("first_plugin", "second_plugin")
    import pause  # type: ignore[import-not-found]

    found: dict[str, object] = {}

    def find(name: str) -> None:
        try:
            found[name] = plugins.find(name).__module__
        except PluginNotFoundError as error:
            found[name] = error

    first = threading.Thread(target=find, args=("first_plugin",))
    first.start()
    assert pause.entered.wait(60)
    second = threading.Thread(target=find, args=("second_plugin",))
    second.start()
    second.join(0.3)  # without the lock it has failed by now
    pause.over.set()
    first.join(60)
    second.join(60)
    assert found == {"first_plugin": "first_plugin", "second_plugin": "second_plugin"}


def test_an_import_that_failed_is_tried_again(packages: Path) -> None:
    plugin = "import parts.lower\nfrom parts.upper import ready\n" + CONNECTOR
    write(
        packages,
        {
            "parts/__init__.py": "import parts.lower\nfrom parts.upper import ready\n",
            "parts/lower.py": "import parts\n",
            "parts/upper.py": "raise OSError('the licence server is down')\n",
            "late_plugin.py": plugin,
        },
    )
    plugins = registry("late_plugin")
    with pytest.raises(PluginNotFoundError, match="OSError: the licence server is down"):
        plugins.find("late_plugin")
    assert [each for each in sys.modules if each.startswith("parts")] == []
    (problem,) = plugins.list()[1]
    assert "the licence server is down" in problem.message
    write(packages, {"parts/upper.py": "ready = True\nimport parts\nlower = parts.lower\n"})
    sys.path_importer_cache.clear()
    assert plugins.find("late_plugin").__module__ == "late_plugin"
    assert plugins.list()[1] == []


def test_a_transform_whose_import_failed_is_tried_again(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("Trim", "trimming:Trim", "drover.transforms")
    monkeypatch.setattr(class_registry, "entry_points", lambda group: [entry])
    transforms: ClassRegistry[Transform] = ClassRegistry("transform", "none", list)
    with pytest.raises(ValueError, match="'Trim' cannot be imported: ModuleNotFoundError"):
        transforms.find("Trim")
    write(packages, {"trimming.py": "class Trim:\n    aliases = ('Cut',)\n"})
    sys.path_importer_cache.clear()
    assert transforms.find("Trim") is transforms.find("Cut")
    assert transforms.names() == ["Trim"]


def test_an_import_that_hangs_blocks_its_own_plugin_only() -> None:
    imports = PluginImports(limit_s=0.1)
    entered, over = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        over.wait(60)

    hung = threading.Thread(target=lambda: imports.run("slow = slow:Lines", hang))
    hung.start()
    assert entered.wait(60)
    try:
        assert imports.run("other = other:Lines", lambda: 7) == 7
        with pytest.raises(PluginImportHangsError, match="the import of 'slow = slow:Lines' hangs"):
            imports.run("slow = slow:Lines", lambda: 7)
        assert imports.run("third = third:Lines", lambda: 7) == 7
    finally:
        over.set()
        hung.join(60)
    assert imports.run("slow = slow:Lines", lambda: 8) == 8


def test_a_plugin_may_import_another_one_during_its_import() -> None:
    imports = PluginImports(limit_s=60)
    assert imports.run("outer", lambda: imports.run("inner", lambda: 7)) == 7
