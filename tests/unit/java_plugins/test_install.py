"""``drover plugin add``, ``upgrade`` and ``remove``: complete or without effect."""

import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drover.java_plugins import install
from drover.java_plugins.catalogue import JavaPluginError, installed
from drover.java_plugins.changes import changed_classes
from drover.java_plugins.class_settings import settings_of
from drover.java_plugins.describe import JavaHost
from tests.support.compiled_plugins import compiled, jar, java_host, source_code

_MANIFEST = '{"name": "kafka-connect-acme", "version": "2.0.1", "owner": {"username": "acme"}}'
_NO_JVM = JavaHost(Path("/no/java"), Path("/no/jars"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = {
        "org.acme.Orders": source_code("Orders", version="7.1"),
        "org.acme.Bad": source_code("Bad", config="new Absent();"),
        "org.acme.Absent": "package org.acme; public class Absent {}",
    }
    return compiled(tmp_path_factory.mktemp("installed"), code)


@pytest.fixture
def orders(classes: Path, tmp_path: Path) -> Path:
    return jar(tmp_path / "files" / "acme-orders-1.0.jar", classes, without="Bad")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _names(home: Path) -> list[str]:
    return [each.name for each in installed(home).plugins]


def test_a_jar_is_installed_with_the_version_and_settings_of_its_class(
    orders: Path, home: Path
) -> None:
    done = install.add(str(orders), home, host=java_host())
    assert (done.plugin.name, done.is_new, done.warnings) == ("acme-orders@1.0", True, ())
    found = installed(home).find("org.acme.Orders")
    assert (found.version, found.path) == ("7.1", home / "acme-orders@1.0" / "jars")
    assert home.stat().st_mode & 0o777 == 0o700
    settings = settings_of(found, _NO_JVM, home).settings  # kept: no JVM is needed
    assert [each.name for each in settings] == ["url"]


def test_settings_that_are_not_kept_are_asked_for_and_kept(orders: Path, home: Path) -> None:
    install.add(str(orders), home, host=None)
    found = installed(home).find("org.acme.Orders")
    assert found.version == "1.0"  # of the jar's name
    with pytest.raises(JavaPluginError, match="does not start"):
        settings_of(found, _NO_JVM, home)
    assert settings_of(found, java_host(), home) == settings_of(found, _NO_JVM, home)


def test_a_class_whose_library_is_missing_is_a_warning(
    classes: Path, tmp_path: Path, home: Path
) -> None:
    path = jar(tmp_path / "acme-2.jar", classes, without="Absent")
    done = install.add(str(path), home, host=java_host())
    (warning,) = done.warnings
    assert "org.acme.Bad needs the class org.acme.Absent" in warning
    assert {each.simple_name for each in done.plugin.classes} == {"Bad", "Orders"}


def test_a_repeated_add_changes_nothing(orders: Path, home: Path) -> None:
    install.add(str(orders), home, host=None)
    before = {each: each.stat().st_mtime_ns for each in home.rglob("*.js*")}
    assert not install.add(str(orders), home, host=None).is_new
    assert {each: each.stat().st_mtime_ns for each in home.rglob("*.js*")} == before


def test_an_archive_of_a_hub_has_the_name_and_version_of_its_manifest(
    orders: Path, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "download.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(orders, "acme-kafka-connect-acme-2.0.1/lib/acme.jar")
        archive.writestr("acme-kafka-connect-acme-2.0.1/manifest.json", _MANIFEST)
        archive.writestr("acme-kafka-connect-acme-2.0.1/doc/README.md", "text")
    done = install.add(str(path), home, host=None)
    assert (done.plugin.name, done.plugin.source) == ("kafka-connect-acme@2.0.1", str(path))


def test_an_archive_without_a_folder_and_a_manifest_is_installed(
    orders: Path, tmp_path: Path, home: Path
) -> None:
    """As in https://github.com/confluentinc/cp-docker-images/issues/776."""
    path = tmp_path / "kafka-connect-acme-0.0.1.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(orders, "acme.jar")
    assert install.add(str(path), home, host=None).plugin.name == "kafka-connect-acme@0.0.1"


def test_the_folder_of_a_maven_build_is_installed(orders: Path, tmp_path: Path, home: Path) -> None:
    """As in https://github.com/jcustenborder/kafka-connect-spooldir/issues/26."""
    target = tmp_path / "target"
    target.mkdir()
    shutil.copy(orders, target / "acme-1.3.jar")
    shutil.copy(orders, target / "original-acme-1.3.jar")
    with zipfile.ZipFile(target / "acme-1.3-sources.jar", "w") as archive:
        archive.writestr("org/acme/Orders.java", "text")
    (target / "classes").mkdir()
    (target / "maven-status.lst").write_text("text")
    done = install.add(str(target), home, host=java_host(), name="acme")
    assert (done.plugin.name, done.warnings) == ("acme@1.3", ())
    assert [each.name for each in done.plugin.classes] == ["org.acme.Orders"]


def test_a_tar_archive_has_the_name_and_version_of_its_file(
    orders: Path, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "debezium-connector-acme-3.6.3.Final-plugin.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(orders, "debezium-connector-acme/acme.jar")
    assert install.add(str(path), home, host=None).plugin.name == (
        "debezium-connector-acme@3.6.3.Final"
    )


def test_a_folder_is_installed_under_a_given_name(orders: Path, home: Path) -> None:
    done = install.add(str(orders.parent), home, host=None, name="shop")
    assert done.plugin.name == "shop@1.0"
    with pytest.raises(JavaPluginError, match="is not a name"):
        install.add(str(orders.parent), home, host=None, name="../shop")


def test_versions_are_side_by_side_until_an_upgrade(
    orders: Path, tmp_path: Path, home: Path
) -> None:
    newer = shutil.copy(orders, tmp_path / "acme-orders-2.0.jar")
    install.add(str(orders), home, host=None)
    install.add(str(newer), home, host=None)
    assert _names(home) == ["acme-orders@1.0", "acme-orders@2.0"]
    assert installed(home).find("org.acme.Orders").plugin == "acme-orders@2.0"
    with pytest.raises(JavaPluginError, match=r"several versions: name one of acme-orders@1\.0"):
        install.remove("acme-orders", home)
    latest = shutil.copy(orders, tmp_path / "acme-orders-3.0.jar")
    done = install.add(str(latest), home, host=None, upgrades=True)
    assert done.replaced == ("acme-orders@1.0", "acme-orders@2.0")
    assert _names(home) == ["acme-orders@3.0"]
    assert install.remove("acme-orders", home).name == "acme-orders@3.0"
    assert _names(home) == []
    with pytest.raises(JavaPluginError, match="has no plugin acme-orders"):
        install.remove("acme-orders", home)


def test_a_plugin_that_was_installed_since_the_engine_started_has_changed(
    orders: Path, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins"
    (folder / "acme").mkdir(parents=True)
    shutil.copy(orders, folder / "acme")
    install.add(str(orders), home, host=None)
    changed = changed_classes(0, home, (folder,))
    assert set(changed) == {"org.acme.Orders", "Orders"}
    jars = [*home.rglob("*.jar"), *folder.rglob("*.jar")]
    now_ms = max(each.stat().st_ctime_ns for each in jars) // 1_000_000 + 1
    assert changed_classes(now_ms, home, (folder,)) == {}
    home.chmod(0o777)
    assert changed_classes(0, home, ()) == {}


def test_other_jars_under_an_installed_version_need_an_upgrade(
    orders: Path, classes: Path, home: Path
) -> None:
    install.add(str(orders), home, host=None)
    orders.unlink()
    jar(orders, classes)
    with pytest.raises(JavaPluginError, match=r"acme-orders@1\.0 is installed from .* other jars"):
        install.add(str(orders), home, host=None)
    assert "org.acme.Bad" not in installed(home)
    assert install.add(str(orders), home, host=None, upgrades=True).is_new
    assert "org.acme.Bad" in installed(home)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("none.zip", "neither a file or folder nor Maven coordinates"),
        ("a:b", "neither a file or folder nor Maven coordinates"),
        ("a:b:c:d", "neither a file or folder nor Maven coordinates"),
        ("org.acme:<x/>:1", "neither a file or folder nor Maven coordinates"),
        ("org.acme:acme:LATEST", "has no fixed version"),
        ("https://example.org/acme.zip", "is an address: download the file"),
        ("text.txt", "is no plugin: give a folder"),
        ("no.zip", r"no\.zip is no zip archive"),
        ("no.jar", r"no\.jar is no zip archive"),
        ("no.tar.gz", r"no\.tar\.gz is no tar archive"),
        ("empty", "empty has no jar"),
        ("plain.jar", "has no connector, converter, transform or predicate"),
        (
            "twice.zip",
            r"has no jar, but an archive in it: unpack .*twice\.zip, then add inner\.tar\.gz",
        ),
    ],
)
def test_what_is_no_plugin_is_refused_without_a_trace(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, what: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "no.zip", "no.jar", "no.tar.gz"):
        (tmp_path / name).write_text("text")
    (tmp_path / "empty").mkdir()
    with zipfile.ZipFile("plain.jar", "w") as archive:
        archive.writestr("a.txt", "text")
    with zipfile.ZipFile("twice.zip", "w") as archive:
        archive.write("plain.jar", "inner.tar.gz")
    with pytest.raises(JavaPluginError, match=message):
        install.add(what, home, host=None)
    assert [each.name for each in home.iterdir()] == [".lock"]


def test_a_home_that_cannot_be_used_is_named(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(JavaPluginError, match=r"cannot be used .*set DROVER_PLUGIN_HOME"):
        install.add(str(orders), tmp_path / "file" / "home", host=None)
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    with pytest.raises(JavaPluginError, match=r"mode 0777.*chmod 700"):
        install.add(str(orders), shared, host=None)


def test_a_home_of_another_user_is_refused(
    orders: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.add(str(orders), home, host=None)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    for call in (
        lambda: install.add(str(orders), home, host=None),
        lambda: install.remove("acme-orders", home),
        lambda: installed(home),
    ):
        with pytest.raises(JavaPluginError, match=r"belongs to .*DROVER_PLUGIN_PATH"):
            call()


def test_what_a_killed_add_left_is_not_seen_and_is_removed(orders: Path, home: Path) -> None:
    install.add(str(orders), home, host=None)
    (home / "acme-orders@1.0").rename(home / ".adding-killed")
    (home / ".removing-killed").mkdir()
    assert _names(home) == []
    install.add(str(orders), home, host=None)
    assert _names(home) == ["acme-orders@1.0"]
    assert not (home / ".adding-killed").exists()
    assert not (home / ".removing-killed").exists()


def test_two_adds_at_once_install_both(orders: Path, tmp_path: Path, home: Path) -> None:
    program = """
import sys
from pathlib import Path
from drover.java_plugins import install
install.add(sys.argv[1], Path(sys.argv[2]), host=None)
"""
    other = shutil.copy(orders, tmp_path / "other-1.0.jar")
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(each), str(home)])
        for each in (orders, other, orders)
    ]
    assert [each.wait(120) for each in running] == [0, 0, 0]
    assert _names(home) == ["acme-orders@1.0", "other@1.0"]


def test_a_link_in_a_folder_and_an_archive_that_claims_too_much_are_refused(
    orders: Path, tmp_path: Path, home: Path
) -> None:
    (orders.parent / "link.jar").symlink_to(orders)
    with pytest.raises(JavaPluginError, match=r"link\.jar is a link"):
        install.add(str(orders.parent), home, host=None)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("big.jar")
        entry.size = 10 * 1024**3
        archive.fileobj.write(entry.tobuf())  # the claim alone
    with pytest.raises(JavaPluginError, match="bytes when it is unpacked, the limit"):
        install.add(str(path), home, host=None)


@pytest.mark.parametrize("form", ["jar", "folder", "zip", "tar.gz"])
def test_a_full_disk_is_named_and_leaves_nothing(
    orders: Path, tmp_path: Path, home: Path, file_size_limit: Callable[[int], None], form: str
) -> None:
    """A limit of the size of files acts as a full disk: a write fails in the middle of a file."""
    install.add(str(orders), home, host=None, name="other")
    content = tmp_path / "content"
    content.mkdir()
    shutil.copy(orders, content / "acme.jar")
    (content / "large.bin").write_bytes(os.urandom(200_000))
    what = content
    if form == "jar":
        what = content / "acme-1.0.jar"
        with zipfile.ZipFile(shutil.copy(orders, what), "a") as archive:
            archive.writestr("large.bin", os.urandom(200_000))
    elif form in ("zip", "tar.gz"):
        kind = "gztar" if form == "tar.gz" else form
        what = Path(shutil.make_archive(str(tmp_path / "acme-1.0"), kind, content))
    file_size_limit(100_000)
    words = rf"^the plugin home {home} has not enough space .*set DROVER_PLUGIN_HOME"
    with pytest.raises(JavaPluginError, match=words):
        install.add(str(what), home, host=None)
    assert sorted(each.name for each in home.iterdir()) == [".lock", "other@1.0"]
    install.remove("other", home)  # to free space
    assert _names(home) == []


def test_a_plugin_is_installed_without_its_settings_where_temporary_files_cannot_be_written(
    orders: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    done = install.add(str(orders), home, host=_NO_JVM)
    (warning,) = done.warnings
    assert f"temporary files {tmp_path / 'gone'} cannot be used (No such file" in warning
    assert "set TMPDIR" in warning


@pytest.fixture
def file_size_limit() -> Iterator[Callable[[int], None]]:
    """Limits the size of files that this process writes, until the end of the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_archive_made_by_macos_is_installed(orders: Path, tmp_path: Path, home: Path) -> None:
    """As in https://github.com/jcustenborder/kafka-connect-transform-common/issues/136."""
    path = tmp_path / "acme-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(orders, "acme-1.0/lib/acme.jar")
        archive.writestr("__MACOSX/acme-1.0/lib/._acme.jar", b"\0\5\x16\7" + bytes(100))
    done = install.add(str(path), home, host=None)
    assert [each.path for each in done.plugin.jars] == ["acme-1.0/lib/acme.jar"]


def test_an_archive_made_by_windows_is_installed(orders: Path, tmp_path: Path, home: Path) -> None:
    """Its folders and paths are written with backslashes."""
    path = tmp_path / "acme-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("acme\\lib\\", b"")
        archive.write(orders, "acme\\lib\\acme.jar")
    done = install.add(str(path), home, host=None)
    assert [each.path for each in done.plugin.jars] == ["acme/lib/acme.jar"]
