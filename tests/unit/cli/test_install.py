"""deploy/install.py: uv where it can be used, with pip's settings; pip elsewhere."""

import hashlib
import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from deploy import install, lock
from tests.support.repository import REPOSITORY


def test_settings_of_pip_apply_by_their_precedence() -> None:
    listed = (
        "global.index-url='https://a.example/simple'\n"
        "install.index-url='https://b.example/simple'\n"
        "download.proxy='http://other.example'\n"
        ":env:.default-timeout='180'\n"
        "global.extra-index-url='\\nhttps://c.example/simple\\nhttps://d.example/simple'\n"
    )
    settings = install.pip_settings(listed)
    assert settings["index-url"] == "https://b.example/simple"
    assert settings["timeout"] == "180"
    assert "proxy" not in settings


def test_uv_gets_index_certificate_and_proxy_of_pip() -> None:
    variables, flags = install.for_uv(
        {
            "index-url": "https://a.example/simple",
            "extra-index-url": "\nhttps://c.example/simple\nhttps://d.example/simple",
            "find-links": "/wheels https://e.example/wheels",
            "cert": "/etc/company.pem",
            "proxy": "http://proxy.example:3128",
            "trusted-host": "a.example",
            "timeout": "60",
            "no-index": "false",
            "no-cache-dir": "true",
            "disable-pip-version-check": "1",
        }
    )
    assert variables == {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_INDEX": "https://c.example/simple https://d.example/simple",
        "UV_FIND_LINKS": "/wheels,https://e.example/wheels",
        "SSL_CERT_FILE": "/etc/company.pem",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
        "UV_INSECURE_HOST": "a.example",
        "UV_HTTP_TIMEOUT": "60",
    }
    assert flags == ["--no-cache"]


@pytest.mark.parametrize(
    "setting", ["client-cert", "keyring-provider", "only-binary", "unheard-of"]
)
def test_pip_installs_where_uv_lacks_a_setting(setting: str) -> None:
    with pytest.raises(install.NotInUvError, match=setting):
        install.for_uv({setting: "value"})


def test_uv_gets_the_certificates_that_pip_finds_in_the_environment(tmp_path: Path) -> None:
    given = {"REQUESTS_CA_BUNDLE": "/a.pem", "CURL_CA_BUNDLE": "/b.pem"}
    assert install.certificates(given) == {"SSL_CERT_FILE": "/a.pem"}
    assert install.certificates({"CURL_CA_BUNDLE": "/b.pem"}) == {"SSL_CERT_FILE": "/b.pem"}
    assert install.certificates({**given, "SSL_CERT_FILE": "/own.pem"}) == {}
    assert install.certificates({**given, "SSL_CERT_DIR": "/own"}) == {}
    assert install.certificates({}) == {}
    folder = str(tmp_path)
    assert install.certificates({"REQUESTS_CA_BUNDLE": folder}) == {"SSL_CERT_DIR": folder}
    assert install.for_uv({"cert": folder})[0] == {"SSL_CERT_DIR": folder}


@pytest.mark.parametrize("setting", ["target", "prefix", "root", "user", "python", "dry-run"])
def test_settings_that_install_elsewhere_apply_to_neither(setting: str) -> None:
    settings = {setting: "1", "index-url": "https://a.example"}
    assert install.for_uv(settings) == ({"UV_DEFAULT_INDEX": "https://a.example"}, [])
    name = f"PIP_{setting.replace('-', '_').upper()}"
    assert install.pip_environment(settings, {name: "1", "PATH": "/bin"}) == {
        "PATH": "/bin",
        "PIP_INDEX_URL": "https://a.example",
        "PIP_CONFIG_FILE": os.devnull,
    }


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("  cause: Failed to fetch: https://u:secret@i.example/simple/a/\n  cause: dns error",
         "cannot fetch https://i.example/simple/a/:"),
        ("WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(x)': "
         "/simple/uv/\nERROR: No matching distribution found for uv",
         "cannot fetch /simple/uv/:"),
    ],
)  # fmt: skip
def test_one_line_names_what_could_not_be_fetched(output: str, named: str) -> None:
    reason = install.reason_in(output)
    assert reason.startswith(named)
    assert "secret" not in reason
    assert "\n" not in reason


def test_other_failures_are_not_taken_for_a_lost_network() -> None:
    assert install.reason_in("error: hash mismatch for `a==1`") == ""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has pip alone."""
    path = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(path, with_pip=True)
    return path / "bin/python"


def run(python: Path, lock: Path, *what: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
        "PIP_CONFIG_FILE": os.devnull,
        "XDG_CACHE_HOME": str(python.parent / "cache"),
        **settings,
    }
    command = [str(python), "-m", "deploy.install", str(lock), *what]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )


def test_without_a_network_it_ends_with_one_line(python: Path) -> None:
    index = "http://user:secret@127.0.0.1:9/simple"
    done = run(python, REPOSITORY / lock.LOCK, "rich", PIP_INDEX_URL=index, PIP_RETRIES="1")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("cannot fetch /simple/uv/: ")


def test_only_files_with_the_digests_of_the_lock_are_installed(
    python: Path, tmp_path: Path
) -> None:
    """Without a wheel of uv, pip installs."""
    names = ["editables", "hatchling", "setuptools", "small"]
    for name in names:
        path = tmp_path / f"{name}-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{name}_marker.py", "")
            wheel.writestr(
                f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
            )
            wheel.writestr(
                f"{name}-1.dist-info/WHEEL",
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(f"{name}-1.dist-info/RECORD", "")

    def written(changed: str) -> Path:
        lines = [f"uv==1 \\\n    --hash=sha256:{'0' * 64}\n"]
        for name in names:
            content = (tmp_path / f"{name}-1-py3-none-any.whl").read_bytes()
            digest = "0" * 64 if name == changed else hashlib.sha256(content).hexdigest()
            lines.append(f"{name}==1 \\\n    --hash=sha256:{digest}\n")
        path = tmp_path / "requirements.lock"
        path.write_text("".join(lines), encoding="utf-8")
        return path

    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    refused = run(python, written("small"), "small", **settings)
    assert refused.returncode == 1
    assert "HASHES" in refused.stderr
    place = python.parent.parent
    assert not list(place.rglob("small_marker.py"))
    done = run(python, written(""), "small", **settings)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("pip installs, which takes a few minutes: ")
    assert list(place.rglob("small_marker.py"))


_UNKNOWN_ISSUER = """\
error: Failed to fetch: https://i.example/simple/a/
  Caused by: error sending request for url
  Caused by: client error (Connect)
  Caused by: invalid peer certificate: UnknownIssuer
"""


def test_pip_installs_when_uv_alone_cannot_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{_UNKNOWN_ISSUER}END\nexit 2\n")
    uv.chmod(0o755)
    installer = install.Installer((REPOSITORY / lock.LOCK).read_text())
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@" >> "$0.calls"\n')
    pip.chmod(0o755)
    installer._pip = [str(pip)]
    installer._install = [str(uv)]
    installer.install(["rich"])
    told = capsys.readouterr().err
    assert "uv failed: Caused by: invalid peer certificate: UnknownIssuer" in told
    assert len((tmp_path / "pip.calls").read_text().splitlines()) == 2

    pip.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{_UNKNOWN_ISSUER}END\nexit 1\n")
    installer._install = [str(uv)]
    with pytest.raises(install.InstallError, match=r"^cannot fetch https://i\.example/simple/a/: "):
        installer.install(["rich"])


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
         "\n[notice] A new release of pip is available",
         "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"),
        ("error: failed\n  Caused by: https://u:secret@i.example", "Caused by: https://i.example"),
        ("", "no reason given"),
    ],
)  # fmt: skip
def test_the_line_with_the_error_is_shown(output: str, error: str) -> None:
    assert install.last_error(output) == error


def test_a_missing_library_for_a_socks_proxy_is_named(python: Path) -> None:
    done = run(
        python,
        REPOSITORY / lock.LOCK,
        "rich",
        PIP_INDEX_URL="https://127.0.0.1:9/simple",
        PIP_PROXY="socks5://127.0.0.1:9",
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("pip cannot use a SOCKS proxy without PySocks: ")


def test_settings_of_pip_that_cannot_be_read_are_named(python: Path, tmp_path: Path) -> None:
    broken = tmp_path / "pip.conf"
    broken.write_text("[global\n")
    done = run(python, REPOSITORY / lock.LOCK, "rich", PIP_CONFIG_FILE=str(broken))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("pip's settings cannot be read: ")
    assert str(broken) in done.stderr


def test_packages_of_an_interrupted_installation_are_incomplete(tmp_path: Path) -> None:
    def package(name: str, record: str | None) -> Path:
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        if record is not None:
            (folder / "RECORD").write_text(record)
        return folder

    (tmp_path / "here.py").touch()
    package("whole", 'here.py,sha256=a,0\n"__pycache__/here.pyc",,\nwhole-1.dist-info/RECORD,,\n')
    package("empty", "")
    cut = [package("cut", "here.py,,\ngone.py,,\n"), package("unrecorded", None)]
    assert sorted(install.incomplete(tmp_path)) == cut


def test_an_incomplete_package_of_the_lock_is_forgotten_but_not_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("small_part", "pip", "own"):
        (tmp_path / f"{name}-1.dist-info").mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda _kind: str(tmp_path))
    installer = install.Installer("small-part==1 \\\n    --hash=sha256:0\npip==1 \\\n")
    installer.forget_incomplete()
    assert {each.name for each in tmp_path.iterdir()} == {"own-1.dist-info", "pip-1.dist-info"}
