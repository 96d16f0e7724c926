"""The catalogue of installed Java plugins: what is found, and which of several classes is used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from drover.java_plugins.catalogue import (
    CATALOGUE_FILE,
    JARS_FOLDER,
    Catalogue,
    JavaClass,
    JavaPluginError,
    Kind,
    Plugin,
    installed,
)
from drover.java_plugins.documents import to_document

_SOURCE = JavaClass("org.acme.OrdersSource", Kind.SOURCE, "1.0", "acme@1.0", Path("jars"))


def _plugin(name: str, *classes: JavaClass, path: Path = Path("jars")) -> Plugin:
    own = tuple(replace(each, plugin=name, path=path) for each in classes)
    return Plugin(name, path, "a test", own, ())


def _write(home: Path, plugin: Plugin) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    folder = home / plugin.name
    (folder / JARS_FOLDER).mkdir(parents=True)
    (folder / CATALOGUE_FILE).write_text(json.dumps(to_document(plugin)))
    return folder


def test_installed_plugins_are_found_without_running_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = _write(home, _plugin("acme@1.0", _SOURCE))
    (home / ".adding-1").mkdir()
    catalogue = installed(home)
    assert catalogue.problems == ()
    found = catalogue.find("org.acme.OrdersSource")
    assert (found.kind, found.plugin, found.path) == (
        Kind.SOURCE,
        "acme@1.0",
        folder / JARS_FOLDER,
    )
    assert catalogue.find("OrdersSource") == found
    assert (catalogue.plugins[0].base_name, catalogue.plugins[0].version) == ("acme", "1.0")


def test_a_missing_home_has_no_plugins(tmp_path: Path) -> None:
    assert installed(tmp_path / "none") == Catalogue()
    assert installed(None) == Catalogue()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 9}', '{"format": 1, "plugin": "a"}', "\x00"]
)
def test_a_damaged_catalogue_file_affects_its_plugin_only(tmp_path: Path, text: str) -> None:
    home = tmp_path / "home"
    _write(home, _plugin("acme@1.0", _SOURCE))
    damaged = _write(home, _plugin("broken@1.0")) / CATALOGUE_FILE
    damaged.write_text(text)
    catalogue = installed(home)
    assert [each.name for each in catalogue.plugins] == ["acme@1.0"]
    (problem,) = catalogue.problems
    assert str(damaged) in problem
    assert "drover plugin add" in problem


def test_a_home_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _write(home, _plugin("acme@1.0", _SOURCE))
    home.chmod(0o770)
    with pytest.raises(JavaPluginError, match=r"mode 0770.*chmod 700"):
        installed(home)


def test_the_latest_of_several_versions_is_used_unless_the_config_names_one() -> None:
    old, new = replace(_SOURCE, version="1.9"), replace(_SOURCE, version="1.10")
    catalogue = Catalogue((_plugin("acme@1.10", new), _plugin("acme@1.9", old)))
    assert catalogue.find("OrdersSource").plugin == "acme@1.10"
    assert catalogue.find("OrdersSource", version="1.9").plugin == "acme@1.9"
    assert catalogue.find("OrdersSource", version="[1.0,1.10)").plugin == "acme@1.9"
    with pytest.raises(JavaPluginError, match=r"in a version 2\.0, but in 1\.9, 1\.10"):
        catalogue.find("OrdersSource", version="2.0")
    with pytest.raises(JavaPluginError, match="the version of OrdersSource must be a version"):
        catalogue.find("OrdersSource", version="[1.0")


@pytest.mark.parametrize("version", ["latest", "some great version", "unknown", ""])
def test_a_version_that_is_no_number_is_found_by_its_text(version: str) -> None:
    """As in https://github.com/apache/kafka/pull/17741."""
    odd = replace(_SOURCE, version=version)
    catalogue = Catalogue((_plugin("acme", odd), _plugin("acme@2", replace(_SOURCE, version="2"))))
    assert catalogue.find("OrdersSource").version == "2"
    if version not in ("", "latest"):
        assert catalogue.find("OrdersSource", version=version).version == version


def test_one_class_in_two_plugins_is_refused_with_both_names() -> None:
    one, other = replace(_SOURCE, jar_sha256="a" * 64), replace(_SOURCE, jar_sha256="b" * 64)
    catalogue = Catalogue((_plugin("acme@1.0", one), _plugin("copy@1.0", other)))
    with pytest.raises(JavaPluginError, match=r"in several plugins.*acme@1\.0, copy@1\.0"):
        catalogue.find("OrdersSource")


def test_one_jar_in_two_plugins_is_no_conflict_and_the_connectors_plugin_is_preferred() -> None:
    shared = replace(_SOURCE, name="org.acme.Unwrap", kind=Kind.TRANSFORM, jar_sha256="a" * 64)
    catalogue = Catalogue((_plugin("acme@1.0", shared), _plugin("other@1.0", shared)))
    assert catalogue.find("Unwrap").plugin == "acme@1.0"
    assert catalogue.find("Unwrap", beside="other@1.0").plugin == "other@1.0"


def test_a_class_of_another_kind_is_not_found() -> None:
    catalogue = Catalogue((_plugin("acme@1.0", _SOURCE),))
    with pytest.raises(JavaPluginError, match="no installed Java plugin has a header converter"):
        catalogue.find("OrdersSource", Kind.HEADER_CONVERTER)
    assert "org.acme.OrdersSource" in catalogue
    assert "org.acme.Other" not in catalogue
