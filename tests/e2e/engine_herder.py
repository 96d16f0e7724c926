"""A herder for kill tests: runs an engine whose Python workers execute user code for ever.

Once the user code runs, prints a JSON line with its guard's process id and the tree's mark.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness
from tests.support.waiting import wait_until_async


async def main() -> None:
    directory = Path(sys.argv[1])
    marker = directory / "marker"
    marker.mkdir()
    harness = Harness(directory)
    await harness.start()
    answer = await harness.start_task("busy", plugin="Busy", marker=str(marker))
    assert answer.HasField("done"), answer
    await wait_until_async(
        lambda: len(list(marker.glob("*.alive"))) == 2,
        timeout_s=CALL_TIMEOUT_S,
        describe="user code on both executors' threads",
    )
    child = harness.supervisor._child
    assert child is not None
    told = {"guard": child.process_id, "tree": child.tree_id, "directory": str(child._directory)}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
