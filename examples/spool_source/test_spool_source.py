"""Tests of the source in Drover's test kit, without a cluster: `pytest` in this folder."""

import json
from collections.abc import Callable
from pathlib import Path

from drover.testing import KillPoint, SourceKit
from spool_source import SpoolSource

MakeSource = Callable[..., SourceKit]


def spooled(root: Path, *numbers: int) -> None:
    for n in numbers:
        folder = root / "new"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:06}.json").write_text(json.dumps({"n": n}))


def left(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.json"))


def read(kit: SourceKit) -> list[int]:
    return [record.json["payload"]["n"] for record in kit.records("messages")]


def test_messages_are_acknowledged_after_their_commit(
    source_kit: MakeSource, tmp_path: Path
) -> None:
    spooled(tmp_path, 1, 2)
    kit = source_kit(SpoolSource, directory=tmp_path, topic="messages")
    kit.run()
    assert read(kit) == [1, 2]
    assert left(tmp_path) == []


def test_a_killed_source_delivers_each_message_once(source_kit: MakeSource, tmp_path: Path) -> None:
    spooled(tmp_path, 1, 2)
    kit = source_kit(SpoolSource, directory=tmp_path, topic="messages")
    kit.kill(before_line="rows = [message for")
    kit.kill(KillPoint.AFTER_WRITE)
    assert left(tmp_path) == ["taken/000001.json", "taken/000002.json"]
    assert read(kit) == []
    kit.kill(KillPoint.AFTER_COMMIT)
    assert left(tmp_path) == ["taken/000001.json", "taken/000002.json"]
    spooled(tmp_path, 3)
    kit.run()
    assert read(kit) == [1, 2, 3]
    assert left(tmp_path) == []
