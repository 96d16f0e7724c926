"""README's secure cluster, built with the README's commands."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import ssl
import sys
from pathlib import Path

import pytest

from drover.local.process import descendants, wait_until_gone
from drover.local.state import DEFAULT_DIRECTORY, read_state
from tests.support.addresses import free_addresses
from tests.support.certificates import DAY, Authority, files_of, issue
from tests.support.cluster import READY_TIMEOUT_S, run_drover
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

_BLOCK = re.compile(r"<!-- run by tests/e2e/test_secure_cluster.py -->\n```console\n(.*?)```", re.S)


def commands() -> list[list[str]]:
    (block,) = _BLOCK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    lines = [shlex.split(line.removeprefix("$ ")) for line in block.splitlines()]
    assert all(words[0] == "drover" for words in lines)
    return [words[1:] for words in lines]


async def start(words: list[str], cwd: Path) -> asyncio.subprocess.Process:
    services = ("COORDINATOR", "CONFIG_STORE", "STATUS_STORE", "WORKER", "GATEWAY")
    addresses = zip(services, free_addresses(len(services)), strict=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drover.cli.main", *words, "--workers", "1"),
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **{f"DROVER_{service}_LISTEN": address for service, address in addresses},
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(300):
        while b"the cluster is up" not in (line := await process.stdout.readline()):
            assert line, f"drover up ended with {await process.wait()}"
    return process


def shown_certificate(address: str, certs: Path) -> bytes:
    """The certificate that a server presents to a new connection."""
    mine = files_of(certs, "viewer")
    context = ssl.create_default_context(cafile=mine.ca)
    context.load_cert_chain(mine.cert, mine.key)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 20) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return shown


async def test_three_commands_make_a_cluster_that_lets_in_who_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    here, elsewhere, certs = tmp_path / "here", tmp_path / "elsewhere", tmp_path / "here/certs"
    here.mkdir()
    elsewhere.mkdir()
    init, up, add = commands()
    assert (await run_drover(*init, cwd=here)).exit_code == 0
    process = await start(up, here)
    try:
        tree = descendants(process.pid)
        state = read_state(here / DEFAULT_DIRECTORY)
        assert state is not None
        (address,) = state.addresses("worker")

        # the folder's own cluster is called with its admin certificate
        async def as_admin() -> bool:
            """Wait until the worker is ready."""
            deleted = await run_drover("connector", "delete", "x", cwd=here)
            assert deleted.exit_code == 1
            return "CONNECTOR_NOT_FOUND" in deleted.err

        await wait_until_async(as_admin, timeout_s=READY_TIMEOUT_S)
        assert (await run_drover("group", "list", cwd=here)).exit_code == 0
        # no other client is admitted before the third command
        nobody = await run_drover("connector", "list", "-a", address, cwd=elsewhere)
        assert (nobody.exit_code, len(nobody.err.splitlines())) == (1, 1)
        assert f"the worker at {address} requires TLS" in nobody.err
        real = [address if word == "localhost:7411" else word for word in add]
        assert real != add
        assert (await run_drover(*real, cwd=here)).exit_code == 0
        listed = await run_drover("connector", "list", cwd=elsewhere)
        assert (listed.exit_code, listed.out) == (0, "no connectors\n")
        refused = await run_drover("connector", "delete", "x", cwd=elsewhere)
        assert refused.exit_code == 1
        assert "needs the role admin for connector 'x', which 'drover-operator'" in refused.err
        processes = {n: p for n, p in state.processes.items() if not n.startswith("gateway")}
        await sound(here, elsewhere, [each.address for each in processes.values()])
        await rotate(address, certs, here)
        assert (await run_drover("connector", "list", cwd=elsewhere)).exit_code == 0
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert await wait_until_gone(tree, 30) == []


async def sound(here: Path, elsewhere: Path, addresses: list[str]) -> None:
    """The doctor passes in the folder and through a context; a second cluster cannot start in the
    folder.
    """
    for folder, checks in ((here, ("coordinator", "worker-1")), (elsewhere, ("--tls-cert",))):
        told = await run_drover("doctor", "-o", "json", cwd=folder)
        found = {each["check"]: each for each in json.loads(told.out)["findings"]}
        assert told.exit_code == 0, found
        assert found.keys() >= {*checks, "leader", "connectors"}
    services = ("COORDINATOR", "CONFIG_STORE", "STATUS_STORE", "WORKER")
    names = [f"DROVER_{service}_LISTEN" for service in services]
    for more in ([], ["--tls"]):
        again = await run_drover("up", *more, cwd=here)
        assert (again.exit_code, again.err.count("\n")) == (1, 1)
        assert "already runs in .drover/up; `drover down` stops it" in again.err
        env = dict(zip(names, addresses, strict=True))
        again = await run_drover("up", *more, cwd=elsewhere, env=env)
        assert (again.exit_code, again.err.count("\n")) == (1, 1)
        assert f"cannot listen on {addresses[0]} for coordinator: the port is in use" in again.err


async def rotate(address: str, certs: Path, here: Path) -> None:
    """Rotate to a good certificate, which the server presents, and then to an expired one."""
    before = shown_certificate(address, certs)
    assert (await run_drover("certs", "init", "certs", "--renew", cwd=here)).exit_code == 0

    def renewed() -> bool:
        return shown_certificate(address, certs) != before

    await wait_until_async(renewed)
    after = shown_certificate(address, certs)
    old = issue(certs / "old", Authority.read(certs), begins=-2 * DAY, ends=-DAY)
    Path(old.key).replace(certs / "service-key.pem")
    Path(old.cert).replace(certs / "service.pem")
    log = here / DEFAULT_DIRECTORY / "logs/worker-1.log"

    def warned() -> bool:
        assert shown_certificate(address, certs) == after
        return "the changed certificate cannot be used: the previous one stays" in log.read_text()

    await wait_until_async(warned)
