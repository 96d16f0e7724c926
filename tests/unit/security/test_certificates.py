import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drover.errors import AlreadyExistsError, InvalidArgumentError, Reason
from drover.security import renewed
from drover.security.certificates import (
    TlsFiles,
    is_for,
    read_certificate,
    renewed_certificate,
)
from drover.security.development_ca import (
    Authority,
    files_of,
    init_certificates,
    keep_certificates,
)
from tests.support.certificates import DAY, issue


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
def looked_at_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)


@pytest.fixture
def said() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


def fault_of(files: TlsFiles) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read_certificate(files)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_certificate_is_read_with_its_names(tmp_path: Path, authority: Authority) -> None:
    found = read_certificate(issue(tmp_path, authority, hosts=("*.example.com", "10.0.0.1")))
    assert set(found.names) == {"drover-admin", "*.example.com", "10.0.0.1"}
    assert is_for(found, "10.0.0.1")
    assert is_for(found, "W.Example.com")
    assert not is_for(found, "10.0.0.2")
    assert not is_for(found, "a.b.example.com")


def test_the_common_name_is_no_host_beside_alternative_names(
    tmp_path: Path, authority: Authority
) -> None:
    files = issue(tmp_path, authority)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "w.example.com")])
    begun = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - DAY)
        .not_valid_after(datetime.now(UTC) + 60 * DAY)
    )
    named = begun.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("v.example.com")]), critical=False
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    Path(files.key).write_bytes(pem)
    for builder, hosts in ((begun, ("w.example.com",)), (named, ("v.example.com",))):
        signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        Path(files.cert).write_bytes(signed)
        found = read_certificate(files, of_cluster=False)
        assert found.hosts == hosts
        assert "w.example.com" in found.names


def test_one_that_is_not_for_the_hosts_that_a_service_advertises_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    files = issue(tmp_path, authority, hosts=("w.example.com", "10.0.0.1"))
    read_certificate(files, advertised={"A": "w.example.com", "B": "10.0.0.1"})
    with pytest.raises(InvalidArgumentError) as caught:
        read_certificate(files, advertised={"A": "v", "B": "10.0.0.2", "C": "v", "D": "10.0.0.1"})
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert caught.value.message.startswith(
        f"{files.cert} is valid for drover-admin, w.example.com, 10.0.0.1, not for v and 10.0.0.2,"
        " which this service advertises (A, B, C): "
    )
    assert "`drover certs init DIR --renew --host v --host 10.0.0.2`" in caught.value.message


def test_a_client_may_have_an_authority_only(tmp_path: Path, authority: Authority) -> None:
    files = issue(tmp_path, authority)
    assert read_certificate(TlsFiles(files.ca)).cert_pem == b""


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_missing_file_is_named(tmp_path: Path, authority: Authority, missing: str) -> None:
    files = issue(tmp_path, authority)
    Path(getattr(files, missing)).unlink()
    assert fault_of(files) == f"{tmp_path}/{missing}.pem cannot be read: No such file or directory"


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
@pytest.mark.parametrize("text", ["", "no PEM at all", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_pem_is_named(
    tmp_path: Path, authority: Authority, broken: str, text: str
) -> None:
    files = issue(tmp_path, authority)
    (tmp_path / f"{broken}.pem").write_text(text)
    assert fault_of(files).startswith(f"{tmp_path}/{broken}.pem must have ")


def test_an_expired_one_tells_since_when(tmp_path: Path, authority: Authority) -> None:
    fault = fault_of(issue(tmp_path, authority, begins=-2 * DAY, ends=-DAY))
    day = (datetime.now(UTC) - DAY).strftime("%Y-%m-%d")
    assert fault.startswith(f"{tmp_path}/cert.pem expired on {day}")


def test_one_that_is_not_valid_yet_tells_from_when(tmp_path: Path, authority: Authority) -> None:
    fault = fault_of(issue(tmp_path, authority, begins=DAY, ends=2 * DAY))
    assert "is valid from " in fault
    assert "check this machine's clock" in fault


def test_one_of_another_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    fault = fault_of(issue(tmp_path, authority, trusted=Authority.make()))
    assert fault == f"{tmp_path}/cert.pem is not signed by an authority in {tmp_path}/ca.pem"


def test_the_key_of_another_one_is_refused(tmp_path: Path, authority: Authority) -> None:
    files = issue(tmp_path, authority)
    other = issue(tmp_path / "other", authority)
    fault = fault_of(TlsFiles(files.ca, files.cert, other.key))
    assert fault == f"{other.key} is not the key of the certificate in {files.cert}"


def test_a_key_with_a_password_is_refused(tmp_path: Path, authority: Authority) -> None:
    files = issue(tmp_path, authority)
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    )
    Path(files.key).write_bytes(pem)
    assert "it is encrypted" in fault_of(files)


def test_one_that_ends_soon_is_warned_of(
    tmp_path: Path, authority: Authority, said: list[structlog.typing.EventDict]
) -> None:
    read_certificate(issue(tmp_path, authority, ends=timedelta(days=2)))
    assert [(e["log_level"], e["event"]) for e in said] == [
        ("warning", "a certificate expires soon: renew it")
    ]
    read_certificate(issue(tmp_path, authority, ends=timedelta(days=60)))
    assert len(said) == 1


@pytest.mark.usefixtures("looked_at_always")
def test_a_rotation_is_used_and_a_broken_one_is_not(
    tmp_path: Path, authority: Authority, said: list[structlog.typing.EventDict]
) -> None:
    certificate = renewed_certificate(issue(tmp_path, authority), advertised={"A": "127.0.0.1"})
    first = certificate.present()
    assert certificate.present() is first
    for broken, why in (
        ({"begins": -9 * DAY, "ends": -8 * DAY}, "expired on"),
        ({"begins": DAY, "ends": 8 * DAY}, "is valid from"),
        ({"trusted": Authority.make()}, "is not signed by an authority"),
        ({"hosts": ("elsewhere",)}, "is valid for drover-admin, elsewhere, not for 127.0.0.1"),
    ):
        said.clear()
        issue(tmp_path, authority, **broken)
        assert certificate.present() is first
        assert certificate.present() is first, "one warning per changed file"
        assert [(e["log_level"], e["event"]) for e in said] == [
            ("warning", "the changed certificate cannot be used: the previous one stays")
        ]
        assert why in said[0]["why"]
    issue(tmp_path, authority)
    assert certificate.present() not in (first, None)
    assert said[1]["event"] == "the certificate was reloaded"


def test_what_init_makes_can_be_used_and_its_keys_are_ones_own(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    init_certificates(directory, hosts=["w.example.com"])
    assert is_for(read_certificate(files_of(directory, "service")), "w.example.com")
    assert not is_for(read_certificate(files_of(directory, "admin")), "127.0.0.1")
    for path in directory.iterdir():
        private = path.name.endswith("-key.pem") or path.name == "access.yaml"
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if private else 0o644), path
    with pytest.raises(AlreadyExistsError, match="--renew"):
        init_certificates(directory)
    before, ca = (directory / "admin.pem").read_bytes(), (directory / "ca.pem").read_bytes()
    init_certificates(directory, renew=True)
    assert (directory / "admin.pem").read_bytes() != before
    assert (directory / "ca.pem").read_bytes() == ca
    read_certificate(files_of(directory, "admin"))


def test_without_an_authority_nothing_is_renewed(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="has no usable authority"):
        init_certificates(tmp_path, renew=True)


def test_certificates_are_kept_until_they_will_not_do(tmp_path: Path) -> None:
    directory, hosts = tmp_path / "certs", ["worker", "*.drover.internal"]

    def kept() -> str:
        return keep_certificates(directory, hosts=hosts)

    def content() -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in directory.iterdir()}

    assert kept() == "there were none"
    first = content()
    assert is_for(read_certificate(files_of(directory, "service")), "3f2a.drover.internal")
    assert kept() == ""
    assert content() == first

    (directory / "viewer.pem").unlink()
    (directory / "access.yaml").write_text("grants: []\n")
    assert "viewer.pem cannot be read" in kept()
    assert (directory / "ca.pem").read_bytes() == first["ca.pem"]
    assert (directory / "access.yaml").read_text() == "grants: []\n"
    hosts.append("coordinator-2")
    assert kept() == "service.pem was not valid for all hosts"
    assert kept() == ""
    init_certificates(directory, hosts=hosts, days=20, renew=True)
    assert kept() == "service.pem was about to expire"
    (directory / "access.yaml").unlink()
    assert kept() == "access.yaml was missing"
    assert kept() == ""
    (directory / "ca-key.pem").unlink()
    assert kept() == "", "the authority's key is not read while all files are valid"
    (directory / "admin.pem").unlink()
    with pytest.raises(InvalidArgumentError, match="has no usable authority"):
        kept()
