"""The classes of a plugin are found in its class files, without running them."""

import zipfile
from pathlib import Path

import pytest

from drover.java_plugins import plugin_path
from drover.java_plugins.archives import ArchiveError
from drover.java_plugins.catalogue import installed
from drover.java_plugins.class_files import ClassFileError, read_class
from drover.java_plugins.plugin_path import split_plugin_path
from drover.java_plugins.scan import ScanError, scan
from drover.java_plugins.values import Kind, Plugin
from tests.support.compiled_plugins import compiled, jar, source_code

_CODE = {
    "org.acme.OrdersSource": source_code("OrdersSource"),
    "org.acme.BaseSource": source_code("BaseSource").replace(
        "public class", "public abstract class"
    ),
    "org.acme.DerivedSource": "package org.acme; public class DerivedSource extends BaseSource {}",
    "org.acme.HiddenSource": "package org.acme; class HiddenSource extends OrdersSource {}",
    "org.acme.NeedsArgument": """package org.acme; public class NeedsArgument extends OrdersSource {
        public NeedsArgument(int count) {} }""",
    "org.acme.Text": """package org.acme;
        public class Text extends org.apache.kafka.connect.storage.StringConverter {}""",
    "org.acme.Mask": """package org.acme;
        public class Mask {
          public static class Value
              extends org.apache.kafka.connect.transforms.ReplaceField.Value<
                  org.apache.kafka.connect.source.SourceRecord> {}
          public class Inner
              extends org.apache.kafka.connect.transforms.ReplaceField.Value<
                  org.apache.kafka.connect.source.SourceRecord> {}
        }""",
    "org.acme.Copier": """package org.acme;
        public class Copier extends OrdersSource { private Object helper = new Helper(); }""",
    "org.acme.Helper": """package org.acme; import java.util.Map;
        public class Helper {
          Object open() {
            return new org.apache.kafka.clients.consumer.KafkaConsumer<String, String>(Map.of());
          }
        }""",
    "org.acme.ByName": """package org.acme;
        public class ByName extends OrdersSource { String history = "org.acme.Helper"; }""",
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("scanned"), _CODE)


def _found(plugin: Plugin) -> set[tuple[str, Kind]]:
    return {(each.name.removeprefix("org.acme."), each.kind) for each in plugin.classes}


def test_classes_are_found_through_their_parents(classes: Path, tmp_path: Path) -> None:
    jar(tmp_path / "acme" / "acme-1.4.jar", classes)
    plugin = scan(tmp_path / "acme", "acme")
    assert _found(plugin) == {
        ("OrdersSource", Kind.SOURCE),
        ("DerivedSource", Kind.SOURCE),
        ("Text", Kind.CONVERTER),
        ("Text", Kind.HEADER_CONVERTER),
        ("Mask$Value", Kind.TRANSFORM),
        ("Copier", Kind.SOURCE),
        ("ByName", Kind.SOURCE),
    }
    assert {each.version for each in plugin.classes} == {"1.4"}
    assert plugin.problems == ()
    assert [(each.path, len(each.sha256)) for each in plugin.jars] == [("acme-1.4.jar", 64)]


def test_a_class_that_opens_a_client_of_kafka_needs_kafka(classes: Path, tmp_path: Path) -> None:
    plugin = scan(jar(tmp_path / "acme.jar", classes), "acme")
    needing = {each.simple_name for each in plugin.classes if each.needs_kafka}
    assert needing == {"Copier", "ByName"}


def test_a_parent_may_be_in_another_jar_and_at_any_depth(classes: Path, tmp_path: Path) -> None:
    jar(tmp_path / "acme" / "lib" / "deep" / "base.jar", classes, without="Derived")
    with zipfile.ZipFile(tmp_path / "acme" / "lib" / "derived.jar", "w") as archive:
        name = "org/acme/DerivedSource.class"
        archive.write(classes / name, name)
    assert ("DerivedSource", Kind.SOURCE) in _found(scan(tmp_path / "acme", "acme"))


def test_classes_of_kafkas_own_api_are_not_the_plugins(classes: Path, tmp_path: Path) -> None:
    path = jar(tmp_path / "acme.jar", classes)
    with zipfile.ZipFile(path, "a") as archive:
        data = (classes / "org/acme/OrdersSource.class").read_bytes()
        archive.writestr("org/apache/kafka/connect/tools/MockConnector.class", data)
        archive.writestr("META-INF/versions/99/org/acme/Newer.class", b"not read")
        archive.writestr("module-info.class", b"not read")
    plugin = scan(path, "acme")
    assert not [each for each in plugin.classes if "Mock" in each.name]
    assert plugin.problems == ()


def test_the_java_that_a_class_needs_is_in_the_catalogue(classes: Path, tmp_path: Path) -> None:
    data = bytearray((classes / "org/acme/BaseSource.class").read_bytes())
    data[7] = 69  # the parent is for Java 25
    path = jar(tmp_path / "acme.jar", classes, without="BaseSource")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("org/acme/BaseSource.class", bytes(data))
    needed = {each.simple_name: each.java for each in scan(path, "acme").classes}
    assert needed["DerivedSource"] == 25
    assert needed["OrdersSource"] < 25


def test_a_damaged_class_file_and_a_jar_in_a_jar_are_problems(
    classes: Path, tmp_path: Path
) -> None:
    entries = {"org/acme/Broken.class": "text", "lib/inner.jar": "text"}
    plugin = scan(jar(tmp_path / "acme.jar", classes, **entries), "acme")
    assert ("OrdersSource", Kind.SOURCE) in _found(plugin)
    nested, broken = plugin.problems
    assert "Broken.class in acme.jar is no class file" in broken
    assert "has jars in it, such as lib/inner.jar" in nested


@pytest.mark.parametrize("cut", [0, 3, 9, 10, 100, 500])
def test_a_class_file_that_is_cut_off_is_an_error(classes: Path, cut: int) -> None:
    data = (classes / "org/acme/OrdersSource.class").read_bytes()
    with pytest.raises(ClassFileError):
        read_class(data[:cut], with_references=True)


def test_a_folder_without_jars_and_a_jar_that_is_no_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    with pytest.raises(ScanError, match="has no jar"):
        scan(tmp_path / "acme", "acme")
    (tmp_path / "acme" / "a.jar").write_text("no zip")
    with pytest.raises(ArchiveError, match=r"a\.jar is no zip archive"):
        scan(tmp_path / "acme", "acme")


def test_the_plugin_path_of_kafka_connect_is_read_as_it_is(classes: Path, tmp_path: Path) -> None:
    home, one, two = tmp_path / "home", tmp_path / "plugins", tmp_path / "more"
    home.mkdir(mode=0o700)
    jar(one / "acme" / "lib" / "acme.jar", classes)
    jar(one / "loose-2.0.jar", classes)
    (one / "no-plugin").mkdir()
    (one / "broken.jar").write_text("no zip")
    (one / "README.md").write_text("text")
    two.mkdir()
    (two / "acme").symlink_to(one / "acme")  # a package manager's links are followed
    before = sorted(one.rglob("*"))
    for _ in range(2):  # the second time from the kept result
        catalogue = installed(home, (one, two, tmp_path / "missing"))
        assert {each.name: each.path for each in catalogue.plugins} == {
            "acme": one / "acme",
            "loose-2.0.jar": one / "loose-2.0.jar",
            str(two / "acme"): two / "acme",
        }
        broken, missing = catalogue.problems
        assert "broken.jar is no zip archive" in broken
        assert "missing in DROVER_PLUGIN_PATH cannot be read" in missing
    assert sorted(one.rglob("*")) == before


def test_plugins_of_the_path_are_scanned_once_though_nothing_was_ever_installed(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "no" / "home", tmp_path / "plugins"
    jar(folder / "acme" / "acme.jar", classes)
    scans: list[Path] = []

    def counted(path: Path, name: str, *, follow_links: bool) -> Plugin:
        scans.append(path)
        return scan(path, name, follow_links=follow_links)

    monkeypatch.setattr(plugin_path, "scan", counted)
    first = installed(home, (folder,))
    assert installed(home, (folder,)) == first
    plugin_path._REMEMBERED.clear()  # as another process
    assert installed(home, (folder,)) == first
    assert scans == [folder / "acme"]
    assert (home.stat().st_mode & 0o777) == 0o700
    jar(folder / "acme" / "more.jar", classes, text="new")
    installed(home, (folder,))
    assert len(scans) == 2
    plugin_path._REMEMBERED.clear()
    for _ in range(2):
        installed(None, (folder,))
    assert len(scans) == 3


def test_a_value_is_not_kept_for_jars_that_changed_while_it_was_computed(
    classes: Path, tmp_path: Path
) -> None:
    home, path = tmp_path / "home", tmp_path / "acme.jar"
    jar(path, classes)

    def computed_while_the_jar_changes() -> str:
        jar(path, classes, text="newer")
        return "old"

    assert plugin_path.stored(path, "value", home, computed_while_the_jar_changes) == "old"
    for _ in range(2):
        assert plugin_path.stored(path, "value", home, lambda: "new") == "new"
    assert plugin_path.stored(path, "value", home, lambda: "newest") == "new"


def test_the_folder_of_one_plugin_is_used_as_one(classes: Path, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "acme"
    home.mkdir(mode=0o700)
    jar(folder / "acme.jar", classes, without="Helper")
    with zipfile.ZipFile(folder / "library.jar", "w") as archive:
        archive.write(classes / "org/acme/Helper.class", "org/acme/Helper.class")
    for _ in range(2):
        catalogue = installed(home, (folder,))
        assert [(each.name, each.path) for each in catalogue.plugins] == [("acme", folder)]
        assert catalogue.find("Copier").needs_kafka
        (problem,) = catalogue.problems
        assert f"is the folder of one plugin, and is used as that: name {tmp_path}" in problem


def test_a_folder_and_its_parent_may_both_be_named(classes: Path, tmp_path: Path) -> None:
    """As in https://github.com/confluentinc/kafka-connect-hdfs/issues/388."""
    folder, libraries = tmp_path / "connector" / "acme", tmp_path / "libraries"
    jar(folder / "acme.jar", classes, without="Helper")
    libraries.mkdir()
    with zipfile.ZipFile(libraries / "library.jar", "w") as archive:
        archive.write(classes / "org/acme/Helper.class", "org/acme/Helper.class")
    (folder / "storage-common").symlink_to("../../libraries")
    for folders in ((folder.parent, folder), (folder, folder.parent)):
        catalogue = installed(None, folders)
        assert [each.path for each in catalogue.plugins] == [folder]
    assert catalogue.find("Copier").needs_kafka  # by a class behind the link


def test_a_link_to_a_jar_that_is_gone_is_ignored(classes: Path, tmp_path: Path) -> None:
    """As in https://github.com/itadventurer/kafka-backup/issues/61."""
    jar(tmp_path / "acme" / "acme.jar", classes)
    (tmp_path / "acme" / "gone.jar").symlink_to("none.jar")
    (tmp_path / "gone.jar").symlink_to("none.jar")
    (tmp_path / "acme" / "loop").symlink_to(tmp_path / "acme")
    catalogue = installed(None, (tmp_path,))
    assert [each.name for each in catalogue.plugins] == ["acme"]
    assert len(catalogue.plugins[0].jars) == 1
    assert catalogue.problems == ()


def test_the_text_of_a_plugin_path_may_have_spaces_and_empty_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_plugin_path(" /usr/share/java, /opt/a b ,,plugins,") == (
        Path("/usr/share/java"),
        Path("/opt/a b"),
        tmp_path / "plugins",
    )
    assert split_plugin_path("") == ()


def test_jars_that_do_not_need_each_other_are_plugins_of_their_own(
    classes: Path, tmp_path: Path
) -> None:
    for name in ("one.jar", "two.jar"):
        jar(tmp_path / "plugins" / name, classes)
    catalogue = installed(None, (tmp_path / "plugins",))
    assert [each.name for each in catalogue.plugins] == ["one.jar", "two.jar"]
    assert catalogue.problems == ()


def test_a_jar_that_was_replaced_is_scanned_again(classes: Path, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "plugins"
    home.mkdir(mode=0o700)
    path = jar(folder / "acme" / "acme.jar", classes)
    assert "org.acme.OrdersSource" in installed(home, (folder,))
    path.unlink()
    jar(folder / "acme" / "acme.jar", classes, without="OrdersSource")
    assert "org.acme.OrdersSource" not in installed(home, (folder,))


def test_classes_where_no_class_loader_looks_are_not_listed(classes: Path, tmp_path: Path) -> None:
    """As in an executable jar of Spring Boot, and in
    https://github.com/confluentinc/kafka-connect-elasticsearch/issues/257.
    """
    folder = tmp_path / "plugins"
    jar(folder / "good.jar", classes, without="DerivedSource")
    with zipfile.ZipFile(folder / "boot.jar", "w") as archive:
        for each in sorted(classes.rglob("*.class")):
            archive.write(each, f"BOOT-INF/classes/{each.relative_to(classes)}")
    assert scan(folder / "boot.jar", "boot").classes == ()
    assert "DerivedSource" not in {each for each, _ in _found(scan(folder, "acme"))}
    assert len(installed(None, (folder,)).plugins) == 2
