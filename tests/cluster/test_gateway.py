"""The gateway of docker-compose.yml: connectors by REST, while containers are killed."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.compose import WAIT_S, ComposeCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults("cluster"), pytest.mark.timeout(3600)]

TOKEN = "token-of-the-gateway-tests"
SOURCE = {
    "connector.class": "FileStreamSource",
    "file": "/files/rest.txt",
    "topic": "rest.lines",
}
SINK = {
    "connector.class": "FileStreamSink",
    "file": "/files/rest-copy.txt",
    "topics": "rest.lines",
}


class Rest:
    """The gateway's port on this host."""

    def __init__(self, cluster: ComposeCluster) -> None:
        self._url = f"https://localhost:{cluster.rest_port}"
        self._ca = str(cluster.certs / "ca.pem")

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = TOKEN
    ) -> requests.Response:
        """One request."""
        return requests.request(
            method,
            self._url + path,
            json=body,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=self._ca,
            timeout=120,
        )

    def status_code(self, path: str, *, token: str = TOKEN) -> int:
        """The status of a GET request; 0 without an answer."""
        try:
            return self.ask("GET", path, token=token).status_code
        except requests.RequestException:
            return 0

    def states(self, name: str) -> set[str]:
        """The states of a connector and its tasks; empty without an answer or a task."""
        try:
            found = self.ask("GET", f"/connectors/{name}/status").json()
        except requests.RequestException:
            return set()
        tasks = found.get("tasks", [])
        return {each["state"] for each in [found["connector"], *tasks]} if tasks else set()


@contextmanager
def admin_token(cluster: ComposeCluster, directory: Path) -> Iterator[None]:
    """Grant the role admin to the token."""
    cluster.copy_out("certs", "/certs/access.yaml", directory / "access.yaml")
    before = (directory / "access.yaml").read_text(encoding="utf-8")
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    cluster.write_access(f"{before}  - {{token_sha256: {digest}, name: rest, role: admin}}\n")
    try:
        yield
    finally:
        cluster.write_access(before)


@pytest.fixture
def rest(cluster: ComposeCluster, tmp_path: Path) -> Iterator[Rest]:
    (gateway,) = cluster.containers("gateway")
    gateway.wait_until_healthy()
    with admin_token(cluster, tmp_path):
        made = Rest(cluster)
        wait_until(lambda: made.status_code("/connectors") == 200, timeout_s=WAIT_S)
        yield made


def test_lines_flow_by_connectors_made_by_rest_while_containers_are_killed(
    cluster: ComposeCluster, rest: Rest
) -> None:
    source, copy = cluster.files / "rest.txt", cluster.files / "rest-copy.txt"
    lines: list[str] = []

    def passes(line: str) -> None:
        lines.append(line)
        with source.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        wait_until(
            lambda: copy.exists() and copy.read_text("utf-8").splitlines() == lines,
            timeout_s=WAIT_S,
            describe=line,
        )

    assert rest.status_code("/connectors", token="") == 401
    assert rest.status_code("/connectors", token="made up") == 401
    source.touch()
    for name, config in (("rest-lines", SOURCE), ("rest-lines-sink", SINK)):
        assert rest.ask("POST", "/connectors", {"name": name, "config": config}).status_code == 201
    passes("first")
    (gateway,) = cluster.containers("gateway")
    with gateway.killed():
        assert rest.status_code("/connectors") == 0
        passes("without a gateway")
    gateway.wait_until_healthy()
    assert {"rest-lines", "rest-lines-sink"} <= {*rest.ask("GET", "/connectors").json()}
    for worker in cluster.containers("worker"):
        with worker.killed():
            wait_until(lambda: rest.status_code("/connectors/rest-lines") == 200, timeout_s=WAIT_S)
            passes(f"without {worker.host}")
        worker.wait_until_healthy()
    cluster.wait_for_workers(2)
    for name in ("rest-lines", "rest-lines-sink"):
        wait_until(
            lambda name=name: rest.states(name) == {"RUNNING"},  # type: ignore[misc]
            timeout_s=WAIT_S,
        )
        assert rest.ask("DELETE", f"/connectors/{name}").status_code == 204
