"""Workers whose clock is an hour off, as real processes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from drover.security.development_ca import init_certificates
from tests.support.certificates import tls_settings
from tests.support.cluster import run_drover, running_cluster
from tests.support.debian import library
from tests.support.idle_worker import Story, idle_stages
from tests.support.rolling import create_connectors, restart_one_by_one
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.shared_cluster import errors_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_800)]


def clock_off(by: str) -> Mapping[str, str]:
    """Shift the time of day that a process sees; elapsed time is unchanged."""
    faked = library("libfaketimeMT.so.1", "libfaketime")
    return {"LD_PRELOAD": str(faked), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.parametrize("by", ["+1h", pytest.param("-1h", marks=pytest.mark.faults("herder"))])
async def test_a_worker_whose_clock_is_off_works_as_the_others_and_is_named(
    tmp_path: Path, by: str
) -> None:
    story = Story(tmp_path)
    services, (first, second) = idle_stages(tmp_path, workers=2)
    off = replace(second, env={**second.env, **clock_off(by)})
    async with running_cluster(tmp_path, [services, [first, off]]) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await create_connectors(client, 2)
            async for restarted in restart_one_by_one(cluster, client, story):
                assert restarted.stops == dict.fromkeys(restarted.own, 2)
        told = await run_drover(
            "doctor", "--address", first.address, "-o", "json", cwd=tmp_path, env={"HOME": ""}
        )
        for name in cluster.supervisor.processes:
            assert errors_in(cluster.log(name)) == [], name
    found = {each["check"]: each for each in json.loads(told.out)["findings"]}
    assert found[f"worker {first.address}"]["level"] == "ok"
    named = found[f"worker {off.address}"]
    assert named["level"] == "error"
    assert f" s {'ahead of' if by == '+1h' else 'behind'} this machine's" in named["found"]
    assert told.exit_code == 1


async def test_a_worker_to_whose_clock_its_certificate_is_not_valid_yet_says_so(
    tmp_path: Path,
) -> None:
    init_certificates(tmp_path / "certs")
    settings = tls_settings(tmp_path / "certs")
    environment = {f"DROVER_{name.upper()}": value for name, value in settings.items()}
    done = await run_to_its_end("worker", tmp_path, {**environment, **clock_off("-1h")})
    assert_one_clear_line(
        done, "worker", "is valid from", "only: check this machine's clock", exit_code=2
    )
