"""Services that cannot be protected as they are told end at their start, with one line."""

from pathlib import Path

import pytest

from tests.support.certificates import DAY, Authority, init_certificates, issue, tls_settings
from tests.support.service_process import assert_one_clear_line, run_to_its_end

SERVICES = ["coordinator", "config-store", "status-store", "worker"]


@pytest.mark.parametrize("service", SERVICES)
async def test_an_expired_certificate(tmp_path: Path, service: str) -> None:
    init_certificates(tmp_path / "certs")
    old = issue(tmp_path / "old", Authority.make(), begins=-2 * DAY, ends=-DAY)
    environment = {f"DROVER_{k.upper()}": v for k, v in tls_settings(tmp_path / "certs").items()}
    environment |= {
        "DROVER_TLS_CERT": old.cert,
        "DROVER_TLS_KEY": old.key,
        "DROVER_TLS_CA": old.ca,
    }
    done = await run_to_its_end(service, tmp_path, environment)
    assert_one_clear_line(done, service, f"{old.cert} expired on", "renew it", exit_code=2)


async def test_a_port_for_everybody_in_plaintext(tmp_path: Path) -> None:
    environment = {"DROVER_CONFIG_STORE_LISTEN": "0.0.0.0:0"}
    done = await run_to_its_end("config-store", tmp_path, environment)
    assert_one_clear_line(
        done, "config-store", "0.0.0.0:0 can be reached from other machines", exit_code=2
    )
