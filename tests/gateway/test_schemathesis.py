"""Requests that schemathesis makes from the OpenAPI document: no answer is undocumented."""

import asyncio
import sys
from pathlib import Path

from tests.gateway.test_rest_workers import TOKENS, closed_cluster, open_cluster
from tests.support.gateways import running_gateway

#: Kafka Connect sends no header Allow with 405; and plugins reject configs that the schemas allow.
EXCLUDED = "unsupported_method,positive_data_acceptance"


async def run_schemathesis(directory: Path, base: str, *more: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{base}/openapi.json"),
        *("--checks", "all", "--exclude-checks", EXCLUDED, "--max-examples", "5"),
        *("--generation-deterministic", "--no-color", "--request-timeout", "60", *more),
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-10_000:]


async def test_requests_to_an_open_cluster(tmp_path: Path) -> None:
    async with (
        open_cluster(tmp_path) as cluster,
        running_gateway([cluster.workers[0].address]) as gateway,
    ):
        await run_schemathesis(tmp_path, gateway.url)


async def test_requests_of_a_viewer_to_a_closed_cluster(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as base:
        await run_schemathesis(
            tmp_path, base, "--header", f"Authorization: Bearer {TOKENS['viewer']}"
        )
