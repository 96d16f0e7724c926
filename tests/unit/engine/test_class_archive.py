"""Archives of Spark's classes: which one an engine uses, and which it does not."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drover.local.java_check import Java
from drover_worker.engine.class_archive import (
    NoArchiveError,
    archive_file,
    check_usable,
    decisive_settings,
    options_of_engine,
)
from drover_worker.engine.settings import JAVA_OPTIONS, NO_CLASS_ARCHIVES, default_class_archives

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
def test_options_of_a_user_for_class_data_sharing_exclude_it(tmp_path: Path, option: str) -> None:
    with pytest.raises(NoArchiveError, match="class data sharing"):
        archive_file(tmp_path, {JAVA_OPTIONS: option}, JAVA)


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
