"""Which packages changed after an engine loaded its code, found without importing them."""

import time
from pathlib import Path

import pytest

from drover_worker.shell.package_changes import PackageChanges
from tests.support.waiting import wait_until


class Site:
    """A folder with installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, name: str, version: str = "1.0", *, requires: tuple[str, ...] = (), module: str = ""
    ) -> None:
        """Write a package as pip does, in place of another version."""
        module = module or name.replace("-", "_")
        info = self.folder / f"{module}-{version}.dist-info"
        for old in self.folder.glob(f"{module}-*.dist-info"):
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        info.mkdir()
        lines = [f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        (info / "entry_points.txt").write_text(f"[drover.connectors]\nA = {module}:A\n")
        self.write(module)
        (info / "RECORD").write_text(f"{module}/__init__.py,,\n{info.name}/METADATA,,\n")

    def write(self, module: str) -> None:
        (self.folder / module).mkdir(exist_ok=True)
        (self.folder / module / "__init__.py").write_text("raise SystemExit('was imported')\n")

    def load(self) -> int:
        """The time at which an engine has loaded everything."""
        now_ms = max(round(each.stat().st_ctime_ns / 1e6 + 1) for each in self.folder.rglob("*"))
        # times of files come from a coarser clock
        wait_until(lambda: time.time() * 1000 > now_ms + 20)
        return now_ms

    def since(self, loaded_ms: int) -> PackageChanges:
        return PackageChanges(loaded_ms, (str(self.folder),))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_nothing_changed(site: Site) -> None:
    site.install("acme-api")
    found = site.since(site.load())
    assert found.distributions == {}
    assert found.of_class("acme_api.Api") is None
    assert found.modules(found.plugin_modules) == []


def test_a_new_package_affects_no_class_of_another(site: Site) -> None:
    site.install("acme-api")
    loaded_ms = site.load()
    site.install("other-api")
    found = site.since(loaded_ms)
    assert found.distributions == {"other-api": "other-api 1.0"}
    assert found.of_class("acme_api.Api") is None
    assert found.of_class("other_api.Api") == "other-api 1.0"


def test_a_package_in_a_new_version_affects_its_classes(site: Site) -> None:
    site.install("acme-api")
    site.install("other-api")
    loaded_ms = site.load()
    site.install("acme-api", "1.1")
    found = site.since(loaded_ms)
    assert found.of_class("acme_api.sub.Api") == "acme-api 1.1"
    assert found.of_class("other_api.Api") is None


def test_a_file_that_was_edited_affects_the_classes_of_its_module(site: Site) -> None:
    site.install("acme-api")
    site.write("plain_module")
    loaded_ms = site.load()
    site.write("acme_api")
    site.write("plain_module")
    found = site.since(loaded_ms)
    assert found.distributions == {}
    assert found.of_class("acme_api.Api") == "the module acme_api"
    assert found.of_class("plain_module.Sink") == "the module plain_module"
    assert found.modules(found.plugin_modules) == ["acme_api"]


def test_compiled_files_are_no_change(site: Site) -> None:
    site.install("acme-api")
    loaded_ms = site.load()
    (site.folder / "acme_api" / "__pycache__").mkdir()
    (site.folder / "acme_api" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    assert site.since(loaded_ms).of_class("acme_api.Api") is None


def test_files_that_another_environment_links_are_no_change(site: Site, tmp_path: Path) -> None:
    """uv links the files of its cache into each environment."""
    site.install("acme-api")
    loaded_ms = site.load()
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.mkdir()
    for file in (each for each in site.folder.rglob("*") if each.is_file()):
        (other / f"{file.parent.name}-{file.name}").hardlink_to(file)
    found = site.since(loaded_ms)
    assert found.distributions == {}
    assert found.of_class("acme_api.Api") is None
    site.install("acme-api", "1.1")
    assert site.since(loaded_ms).of_class("acme_api.Api") == "acme-api 1.1"


def test_a_library_affects_the_packages_that_require_it_also_indirectly(site: Site) -> None:
    site.install("low")
    site.install("middle", requires=("low>=1",))
    site.install("acme-api", requires=("Middle[fast] >= 1; python_version > '3'",))
    site.install("other-api")
    loaded_ms = site.load()
    site.install("low", "2.0")
    found = site.since(loaded_ms)
    assert found.of_class("acme_api.Api") == "low 2.0"
    assert found.of_class("other_api.Api") is None


def test_of_a_requirement_only_the_extras_that_are_named_count(site: Site) -> None:
    extras = ('a>=1; extra == "one"', 'b; extra == "two"')
    site.install("a")
    site.install("b")
    site.install("base", requires=extras)
    site.install("acme-api", requires=("base[one]",))
    loaded_ms = site.load()
    site.install("b", "2.0")
    found = site.since(loaded_ms)
    assert found.of_class("acme_api.Api") is None
    assert found.of_class("base.Api") == "b 2.0", "which extras of it are used is unknown"
    site.install("a", "2.0")
    assert site.since(loaded_ms).of_class("acme_api.Api") == "a 2.0"


def test_an_unknown_class_is_affected_by_nothing(site: Site) -> None:
    found = site.since(0)
    assert found.of_class("JsonConverter") is None
    assert found.of_class("") is None
