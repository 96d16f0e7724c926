from pathlib import Path

import pytest

from drover.local import java_check
from drover.local.java_check import JavaUnusableError, find_java, parse_version

MODULES = "java.base@17\njdk.incubator.vector@17\n"


def fake_java(home: Path, *, version: str, modules: str = MODULES, exit_code: int = 0) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f"if [ $1 = -version ]; then cat >&2 <<'END'\n{version}\nEND\nexit {exit_code}; fi\n"
        f"cat <<'END'\n{modules}END\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019', 11),
        ("bash: java: command not found", None),
    ],
)
def test_reads_the_version_of_old_and_new_releases(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    wanted = fake_java(tmp_path / "home", version='openjdk version "17.0.1"')
    other = fake_java(tmp_path / "other", version='openjdk version "21.0.1"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{other.parent}:/bin:/usr/bin"}
    assert find_java(environ) == java_check.Java(wanted, 17)
    del environ["JAVA_HOME"]
    assert find_java(environ) == java_check.Java(other, 21)


def message(environ: dict[str, str]) -> str:
    with pytest.raises(JavaUnusableError) as caught:
        find_java(environ)
    text = str(caught.value)
    assert "\n" not in text
    assert "install Java 17 or newer" in text
    return text


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    assert "no Java found" in message({"PATH": str(tmp_path)})


def test_java_home_without_a_java_is_named(tmp_path: Path) -> None:
    assert f"JAVA_HOME is {tmp_path}" in message({"JAVA_HOME": str(tmp_path)})


def test_an_old_java_is_too_old(tmp_path: Path) -> None:
    fake_java(tmp_path, version='openjdk version "11.0.2" 2019', modules="")
    assert "is Java 11, too old" in message({"JAVA_HOME": str(tmp_path)})


def test_a_cut_down_runtime_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, version='openjdk version "17.0.2"', modules="java.base@17\n")
    assert "without the module jdk.incubator.vector" in message({"JAVA_HOME": str(tmp_path)})


def test_a_java_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    fake_java(tmp_path, version="Error: could not find libjava.so", exit_code=2)
    assert "does not start (Error: could not find libjava.so)" in message(
        {"JAVA_HOME": str(tmp_path)}
    )


def test_the_program_prints_one_line_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_check.main() == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1
