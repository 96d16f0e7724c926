"""Archives that are damaged, too large, or write outside their folder are refused."""

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from drover.java_plugins.archives import ArchiveError, ArchiveLimits, copy_folder, unpack

_SMALL = ArchiveLimits(entries=3, size_bytes=1000, ratio=100)


def _zip(path: Path, *names: str, data: bytes = b"data") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return path


def _tar(path: Path, entry: tarfile.TarInfo, data: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return path


def test_files_and_folders_are_unpacked_for_the_current_user_only(tmp_path: Path) -> None:
    unpack(_zip(tmp_path / "a.zip", "lib/", "lib/one.jar"), tmp_path / "out")
    file = tmp_path / "out" / "lib" / "one.jar"
    assert file.read_bytes() == b"data"
    assert file.stat().st_mode & 0o777 == 0o600
    entry = tarfile.TarInfo("./plugin/two.jar")
    unpack(_tar(tmp_path / "a.tar.gz", entry, b"data"), tmp_path / "tar")
    assert (tmp_path / "tar" / "plugin" / "two.jar").read_bytes() == b"data"


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.jar"])
@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04" + bytes(40)])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ArchiveError, match=r"is no (zip|tar) archive, or it is damaged"):
        unpack(tmp_path / name, tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../evil.jar", "lib/../../evil.jar", "/etc/evil.jar", "..\\evil.jar", "C:\\evil.jar"]
)
def test_a_path_that_leaves_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="has a path that leaves its folder"):
        unpack(_zip(tmp_path / "a.zip", name), tmp_path / "out")
    with pytest.raises(ArchiveError, match="has a path that leaves its folder"):
        unpack(_tar(tmp_path / "a.tar.gz", tarfile.TarInfo(name), b"x"), tmp_path / "out")
    assert not (tmp_path / "evil.jar").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_special_files_in_a_tar_archive_are_refused(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("lib/link.jar")
    entry.type, entry.linkname = kind, "/etc/passwd"
    with pytest.raises(ArchiveError, match=r"has a link or a special file: 'lib/link\.jar'"):
        unpack(_tar(tmp_path / "a.tgz", entry), tmp_path / "out")


def test_a_link_in_a_zip_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        entry = zipfile.ZipInfo("lib/link.jar")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(ArchiveError, match="has a link or a special file"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_an_archive_that_claims_ten_gigabytes_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    path = _zip(tmp_path / "a.zip", *(f"{each}.jar" for each in range(3)))
    data = bytearray(path.read_bytes())
    at = 0
    while (at := data.find(b"PK\x01\x02", at)) >= 0:  # the sizes in the central directory
        data[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)
        at += 4
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="when it is unpacked"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_made_to_fill_a_disk_is_refused(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", "zeros", data=bytes(70 * 1024 * 1024))
    with pytest.raises(ArchiveError, match="100 times larger"):
        unpack(path, tmp_path / "out")
    tar = _tar(tmp_path / "a.tar.gz", tarfile.TarInfo("zeros"), bytes(70 * 1024 * 1024))
    with pytest.raises(ArchiveError, match="100 times larger"):
        unpack(tar, tmp_path / "out")


def test_too_many_entries_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="more than 3 entries"):
        unpack(_zip(tmp_path / "a.zip", *"abcd"), tmp_path / "a", _SMALL)
    with pytest.raises(ArchiveError, match="more than 1000 bytes"):
        unpack(_zip(tmp_path / "b.zip", *"ab", data=bytes(600)), tmp_path / "b", _SMALL)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_with_one_path_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(ArchiveError, match="two entries with one path"):
        unpack(_zip(tmp_path / "a.zip", *names), tmp_path / "out")


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", "one.jar")
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="has an encrypted file"):
        unpack(path, tmp_path / "out")


def test_an_archive_cut_off_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = _tar(tmp_path / "a.tar.gz", tarfile.TarInfo("one.jar"), bytes(range(256)) * 4000)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(path, tmp_path / "out")


def test_a_folder_with_a_link_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "plugin"
    (source / "lib").mkdir(parents=True)
    (source / "lib" / "one.jar").write_bytes(b"data")
    copy_folder(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "lib" / "one.jar").read_bytes() == b"data"
    (source / "lib" / "link.jar").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match=r"link\.jar is a link"):
        copy_folder(source, tmp_path / "second")
