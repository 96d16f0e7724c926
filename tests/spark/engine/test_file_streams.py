"""The built-in connectors on a real engine: a file, through a topic, into a file."""

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from drover.api.engine.v1 import engine_pb2
from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.spark


def _lines(seed: int, count: int) -> bytes:
    """Lines of any bytes except the line feed."""
    rng = random.Random(seed)
    return b"".join(
        rng.randbytes(rng.randrange(60)).replace(b"\n", b"\r") + b"\n" for _ in range(count)
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


async def test_a_growing_file_arrives_byte_for_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    engine = Harness(tmp_path)
    try:
        await engine.start()
        for name, plugin, topic, path in (
            ("reader", "FileStreamSource", {"topic": "lines"}, source),
            ("writer", "FileStreamSink", {"topics": "lines"}, target),
        ):
            config = {"name": name, "connector.class": plugin, "file": str(path), **topic}
            command = engine_pb2.StartConnector(connector=name, config=config, run_id=1)
            assert (await engine.call(start_connector=command)).HasField("done")
            (task,) = (await engine.task_configs(name, 1)).task_configs.task_configs
            more: dict[str, Any] = {"plugin": plugin, "file": str(path), **topic}
            started = await engine.start_task(name, own_config=task.config, **more)
            assert started.HasField("done"), started
        for part in range(3):
            with source.open("ab") as stream:
                stream.write(_lines(part, 20_000))
            await wait_until_async(
                lambda: _sha256(target) == _sha256(source),
                timeout_s=CALL_TIMEOUT_S,
                describe=lambda: (target.exists() and target.stat().st_size, source.stat().st_size),
            )
        assert engine.records("lines") == 60_000
    finally:
        await engine.close()
    assert _sha256(target) == _sha256(source)
