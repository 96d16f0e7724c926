"""Services with unusable security settings exit at start, with a one-line error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drover.security.certificates import TlsFiles
from drover.security.development_ca import SERVICE, files_of
from tests.support.certificates import DAY, Authority, init_certificates, issue, tls_settings
from tests.support.service_process import SERVICES, assert_one_clear_line, run_to_its_end

#: Creates unusable TLS files in a directory; the authority is the cluster's.
Make = Callable[[Path, Authority], TlsFiles]


def environment_of(certs: Path, files: TlsFiles) -> dict[str, str]:
    """The environment of a service that uses TLS with these files."""
    told = {f"DROVER_{name.upper()}": value for name, value in tls_settings(certs).items()}
    return {
        **told,
        "DROVER_TLS_CERT": files.cert,
        "DROVER_TLS_KEY": files.key,
        "DROVER_TLS_CA": files.ca,
    }


def missing(directory: Path, authority: Authority) -> TlsFiles:
    files = issue(directory, authority)
    Path(files.cert).unlink()
    return files


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("make", "fault", "remedy"),
    [
        pytest.param(missing, "cannot be read", "No such file", id="missing"),
        pytest.param(
            lambda directory, authority: issue(directory, authority, begins=-2 * DAY, ends=-DAY),
            "expired on",
            "renew it",
            id="expired",
        ),
        pytest.param(
            lambda directory, authority: issue(directory, authority, begins=DAY, ends=2 * DAY),
            "is valid from",
            "check this machine's clock",
            id="not valid yet",
        ),
        pytest.param(
            lambda directory, authority: issue(directory, authority, trusted=Authority.make()),
            "is not signed by an authority in",
            "ca.pem",
            id="of another authority",
        ),
    ],
)
async def test_a_certificate_that_cannot_be_used(
    tmp_path: Path, service: str, make: Make, fault: str, remedy: str
) -> None:
    init_certificates(tmp_path / "certs")
    files = make(tmp_path / "bad", Authority.read(tmp_path / "certs"))
    done = await run_to_its_end(service, tmp_path, environment_of(tmp_path / "certs", files))
    assert_one_clear_line(done, service, f"{files.cert} {fault}", remedy, exit_code=2)


@pytest.mark.parametrize(
    ("service", "more"),
    [
        ("worker", {"DROVER_WORKER_INTERNAL_LISTEN": "127.0.0.1:0"}),
        ("coordinator", {}),
    ],
)
async def test_a_certificate_for_another_host_than_the_one_that_is_advertised(
    tmp_path: Path, service: str, more: dict[str, str]
) -> None:
    certs = tmp_path / "certs"
    init_certificates(certs, hosts=["w.example.com"])
    files = files_of(certs, SERVICE)
    variable = f"DROVER_{service.upper()}_ADVERTISED"
    environment = {**environment_of(certs, files), **more, variable: "elsewhere:7411"}
    done = await run_to_its_end(service, tmp_path, environment)
    assert_one_clear_line(
        done,
        service,
        f"{files.cert} is valid for drover-service, localhost, w.example.com, 127.0.0.1, ::1",
        f"not for elsewhere, which this service advertises ({variable})",
        "--host elsewhere",
        exit_code=2,
    )


async def test_a_port_for_everybody_in_plaintext(tmp_path: Path) -> None:
    environment = {"DROVER_CONFIG_STORE_LISTEN": "0.0.0.0:0"}
    done = await run_to_its_end("config-store", tmp_path, environment)
    assert_one_clear_line(
        done, "config-store", "0.0.0.0:0 can be reached from other machines", exit_code=2
    )
