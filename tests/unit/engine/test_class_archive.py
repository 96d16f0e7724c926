"""Archives of Spark's classes: which one an engine uses, and which it does not."""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from drover.local.java_check import Java
from drover_worker.engine import class_archive
from drover_worker.engine.class_archive import (
    NoArchiveError,
    archive_file,
    check_usable,
    decisive_settings,
    java_options,
    options_of_engine,
    write,
)
from drover_worker.engine.jvm_options import split
from drover_worker.engine.settings import JAVA_OPTIONS, NO_CLASS_ARCHIVES, default_class_archives
from tests.support.other_user import called_as_other_user

#: The key needs the path of a program, and starts none.
JAVA = Java(Path(sys.executable), 17)
CONF = {JAVA_OPTIONS: "-XX:+UseSerialGC", "spark.app.name": "drover", "spark.jars": ""}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "classes"
    folder.mkdir(mode=0o700)
    path = archive_file(folder, decisive_settings(CONF), JAVA)
    path.write_bytes(b"archive")
    path.with_suffix(".size").write_text("7")
    return path


def test_an_engine_uses_the_archive_for_its_java_spark_and_options(archive: Path) -> None:
    options = options_of_engine(str(archive.parent), CONF, JAVA)
    assert options == f"-XX:SharedArchiveFile={archive} -XX:+VerifySharedSpaces"


def test_other_options_and_class_paths_have_other_archives(archive: Path) -> None:
    folder = archive.parent
    for name, value in {
        JAVA_OPTIONS: "-XX:+UseG1GC",
        "spark.driver.extraClassPath": "/opt/driver.jar",
        "spark.jars": "/opt/driver.jar",
    }.items():
        other = {**CONF, name: value}
        assert archive_file(folder, decisive_settings(other), JAVA) != archive, name
        assert options_of_engine(str(folder), other, JAVA) == ""
    same = {**CONF, "spark.sql.shuffle.partitions": "8"}
    assert archive_file(folder, decisive_settings(same), JAVA) == archive


def test_none_is_used_where_it_is_off_or_missing(tmp_path: Path) -> None:
    assert options_of_engine(NO_CLASS_ARCHIVES, CONF, JAVA) == ""
    assert options_of_engine(str(tmp_path / "missing"), CONF, JAVA) == ""


def others_may_write(archive: Path) -> None:
    archive.chmod(0o666)


def folder_of_all(archive: Path) -> None:
    archive.parent.chmod(0o777)


def linked(archive: Path) -> None:
    archive.rename(archive.with_name("elsewhere"))
    archive.symlink_to("elsewhere")


def cut(archive: Path) -> None:
    os.truncate(archive, 3)


def unfinished(archive: Path) -> None:
    archive.with_suffix(".size").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (others_may_write, "other users can change"),
        (folder_of_all, "other users can change"),
        (linked, "is a link"),
        (cut, "is damaged"),
        (unfinished, "is damaged"),
    ],
)
def test_an_archive_that_cannot_be_trusted_is_not_used(
    archive: Path, change: Callable[[Path], None], reason: str
) -> None:
    change(archive)
    with pytest.raises(NoArchiveError, match=reason):
        options_of_engine(str(archive.parent), CONF, JAVA)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_archive_of_another_user_is_not_used(archive: Path) -> None:
    os.chown(archive, 65534, 65534)
    with pytest.raises(NoArchiveError, match="other users can change"):
        check_usable(archive)


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/own.jsa"])
def test_options_of_a_user_for_class_data_sharing_exclude_it(option: str) -> None:
    with pytest.raises(NoArchiveError, match="class data sharing"):
        decisive_settings({JAVA_OPTIONS: option})
    with pytest.raises(NoArchiveError, match="JAVA_TOOL_OPTIONS has options for class data"):
        decisive_settings({}, {"JAVA_TOOL_OPTIONS": option})


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h/a"}, "/h/a/.cache/drover/spark-classes"),
        ({"HOME": "/h/a", "XDG_CACHE_HOME": "/c"}, "/c/drover/spark-classes"),
        ({"HOME": "/h/a", "XDG_CACHE_HOME": "relative"}, "/h/a/.cache/drover/spark-classes"),
        ({}, NO_CLASS_ARCHIVES),
    ],
)
def test_the_default_folder_is_in_the_cache_of_the_user(
    environ: dict[str, str], folder: str
) -> None:
    assert default_class_archives(environ) == folder


def test_a_path_with_blanks_is_one_option(tmp_path: Path) -> None:
    folder = tmp_path / "a b'c"
    (option, _) = split(java_options(folder / "k.jsa"))
    assert option == f"-XX:SharedArchiveFile={folder}/k.jsa"


def test_a_folder_with_a_colon_is_refused_because_the_jvm_reads_two_paths(tmp_path: Path) -> None:
    with pytest.raises(NoArchiveError, match=r"colon: set DROVER_CLASS_ARCHIVES"):
        archive_file(tmp_path / "a:b", {}, JAVA)


def written(monkeypatch: pytest.MonkeyPatch, archive: Path) -> list[Path]:
    """Call ``write`` without a JVM; the result has what was written."""
    calls = []

    def session(unfinished: Path, _settings: Mapping[str, str], _directory: Path) -> None:
        unfinished.write_bytes(b"new content")
        calls.append(unfinished)

    monkeypatch.setattr(class_archive, "_run_session", session)
    write(archive, {})
    return calls


def overwritten(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes().upper())  # the size stays


@pytest.mark.parametrize("change", [cut, overwritten, unfinished, linked])
def test_a_damaged_archive_is_written_again(
    archive: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(monkeypatch, archive)
    assert not written(monkeypatch, archive), "a whole one stays"
    change(archive)
    assert written(monkeypatch, archive)
    assert archive.read_bytes() == b"new content"
    assert check_usable(archive)


def test_jars_that_changed_have_another_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "home" / "jars" / "a.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    keys = {archive_file(tmp_path, {}, JAVA)}
    os.utime(jar, (1_000, 1_000))
    keys.add(archive_file(tmp_path, {}, JAVA))
    jar.write_bytes(b"changed")
    os.utime(jar, (1_000, 1_000))
    keys.add(archive_file(tmp_path, {}, JAVA))
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/hadoop/*")
    keys.add(archive_file(tmp_path, {}, JAVA))
    assert len(keys) == 4


def test_a_heap_with_long_references_has_another_archive() -> None:
    small, large = (decisive_settings({"spark.driver.memory": each}, {}) for each in ("31g", "32g"))
    assert small == {}
    assert large == {JAVA_OPTIONS: "-XX:-UseCompressedOops"}


def test_the_writers_jvm_has_only_options_that_decide_the_form_of_classes() -> None:
    options = (
        "-XX:+UseG1GC -XX:TieredStopAtLevel=1 -Dcom.sun.management.jmxremote.port=9999"
        " -agentlib:jdwp=transport=dt_socket,server=y,suspend=y -Xlog:gc*:file=/tmp/gc.log"
        " -XX:StartFlightRecording:filename=/tmp/x.jfr -javaagent:/opt/agent.jar"
        " -XX:OnOutOfMemoryError='kill -9 %p' -XX:+HeapDumpOnOutOfMemoryError -verbose:gc"
    )
    conf = {
        "spark.driver.defaultJavaOptions": "-XX:ObjectAlignmentInBytes=16 -Xloggc:/tmp/gc.log",
        JAVA_OPTIONS: options,
    }
    settings = decisive_settings(conf, {"JAVA_TOOL_OPTIONS": "-Xint -javaagent:/opt/dd.jar"})
    kept = "-Xint -XX:ObjectAlignmentInBytes=16 -XX:+UseG1GC -XX:TieredStopAtLevel=1"
    assert settings == {JAVA_OPTIONS: kept}


def test_options_that_cannot_be_split_are_named() -> None:
    with pytest.raises(NoArchiveError, match=f"{JAVA_OPTIONS} cannot be read: No closing"):
        decisive_settings({JAVA_OPTIONS: "-Da='b"}, {})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive of the installation, without a record."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.setattr(class_archive, "INSTALLED_ARCHIVES", folder)
    path = archive_file(folder, decisive_settings(CONF), JAVA)
    path.write_bytes(b"archive")
    path.with_suffix(".size").write_text("7")
    return path


def test_the_archive_of_the_installation_comes_first(archive: Path, installed: Path) -> None:
    unreadable = str(archive.parent.with_name("a:b"))
    for folder in (str(archive.parent), unreadable):
        assert options_of_engine(folder, CONF, JAVA) == java_options(installed)
    assert options_of_engine(NO_CLASS_ARCHIVES, CONF, JAVA) == ""
    cut(installed)
    assert options_of_engine(str(archive.parent), CONF, JAVA) == java_options(archive)
    with pytest.raises(NoArchiveError):
        options_of_engine(unreadable, CONF, JAVA)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_every_user_takes_an_archive_of_root_that_all_can_read() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        path = Path(place) / "k.jsa"
        path.write_bytes(b"archive")
        path.with_suffix(".size").write_text("7")
        assert called_as_other_user(lambda: check_usable(path))


def test_a_java_without_an_archive_of_its_own_classes_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    server = tmp_path / "lib" / "server"
    server.mkdir(parents=True)
    java.parent.mkdir()
    java.touch()
    with pytest.raises(NoArchiveError, match=r"run `.*/bin/java -Xshare:dump`"):
        class_archive.check_base(Java(java, 17))
    (server / "classes_nocoops.jsa").touch()
    class_archive.check_base(Java(java, 17))
