"""``make run``: copies real rows through a cluster, kills two workers, and compares the output.

Exits 0 if the output equals the input, else 1 with the reason. ``DROVER_DEMO_FEED_S`` sets the
duration of the feed in seconds; ``DROVER_DEMO_SAMPLE=1`` uses the small sample.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from drover.cli.console import EXIT_INTERRUPTED, EXIT_REFUSED, plain
from drover.errors import DroverError
from drover.local.java_check import JavaUnusableError, find_java
from drover.local.state import ClusterError
from examples.flights.dataset import DatasetError, load_dataset
from examples.flights.run import DemoFailedError, DemoOptions, DemoResult, DemoRun
from examples.flights.view import DemoView, plain_table, summary

_ROOT = Path(".drover")
_SAMPLE = Path("tests") / "data" / "flights_sample.csv"
_RUNS_MAX = 10_000


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; their defaults come from the environment."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights", description="Copies real rows through a cluster."
    )
    parser.add_argument(
        "--feed-s",
        type=float,
        default=os.environ.get("DROVER_DEMO_FEED_S", "22"),
        help="duration of the feed in seconds (DROVER_DEMO_FEED_S)",
    )
    parser.add_argument(
        "--stuck-s", type=float, default=90.0, help="fail after this time without a new row"
    )
    parser.add_argument(
        "--sample",
        action="store_true",
        default=os.environ.get("DROVER_DEMO_SAMPLE", "") not in ("", "0"),
        help="use the small sample instead of all flights (DROVER_DEMO_SAMPLE=1)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the run's directory after a success"
    )
    parsed = parser.parse_args(arguments)
    if not parsed.feed_s > 0 or not parsed.stuck_s > 0:
        parser.error("--feed-s and --stuck-s must be above 0")
    return parsed


def new_run_directory(root: Path) -> Path:
    """Create a new directory ``run-<n>``.

    Raises:
        OSError: The directory cannot be created.
    """
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1, _RUNS_MAX):
        directory = root / f"run-{number}"
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return directory
    raise OSError(None, f"{_RUNS_MAX} runs are kept; `make clean-data` deletes them", str(root))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    options = parse_arguments(arguments)
    console = Console(highlight=False)
    try:
        find_java()
        dataset = load_dataset(_ROOT / "cache", _SAMPLE, use_sample=options.sample)
        directory = new_run_directory(_ROOT)
    except (JavaUnusableError, DatasetError) as error:
        return _failed(console, str(error), None)
    except OSError as error:
        return _failed(console, f"cannot use {error.filename or _ROOT}: {error.strerror}", None)
    run_options = DemoOptions(directory, dataset, feed_s=options.feed_s, stuck_s=options.stuck_s)
    try:
        result = asyncio.run(_run(run_options, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; the cluster is down")
        shutil.rmtree(directory, ignore_errors=True)
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        return _failed(console, _reason(group), directory)
    except (DemoFailedError, ClusterError, DroverError, OSError) as error:
        return _failed(console, _reason(error), directory)
    _show_result(console, result)
    if options.keep:
        console.print(f"kept {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _run(options: DemoOptions, console: Console) -> DemoResult:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with DemoView(console) as view:
        return await DemoRun(options, view).run()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, DroverError):
        return f"{error.message} ({error.reason})"
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return str(error) or repr(error)


def _failed(console: Console, reason: str, directory: Path | None) -> int:
    console.print(f"FAILED: {plain(reason)}", style="bold red", markup=False, soft_wrap=True)
    if directory is not None:
        console.print(f"the logs are in {directory / 'logs'}", markup=False, soft_wrap=True)
    return EXIT_REFUSED


def _show_result(console: Console, result: DemoResult) -> None:
    kills = [
        (
            handover.task,
            handover.killed,
            f"{handover.tree_gone_s:.1f} s",
            handover.new_worker,
            f"{handover.running_s:.1f} s",
            f"{handover.flowing_s:.1f} s",
        )
        for handover in result.handovers
    ]
    columns = ("task", "killed", "engine gone", "now on", "RUNNING", "rows flow")
    console.print()
    console.print(
        plain_table("tasks after kill -9 of their worker, times since the kill", columns, kills)
    )
    console.print()
    console.print(_totals_table(result))
    console.print()
    console.print(_letters_table(result))
    console.print()
    rate = result.rows_in / result.seconds if result.seconds else 0.0
    cancelled = result.rows_in - result.rows_out - len(result.dead_letters)
    facts = [
        ("rows in", f"{result.rows_in:,}"),
        ("rows out", f"{result.rows_out:,} in {result.file_count:,} Parquet files"),
        ("filtered", f"{cancelled:,} cancelled flights"),
        ("dead letters", f"{len(result.dead_letters):,}"),
        ("sha256", f"{result.sha256} of both tables by month"),
        ("time", f"{result.seconds:.1f} s, {rate:,.0f} rows/s"),
        ("lost or duplicated", "no row"),
        ("left over", "no process"),
    ]
    console.print(summary("Every row arrived exactly once; the output equals the input", facts))


def _totals_table(result: DemoResult) -> Table:
    rows = [
        (
            month,
            *(
                f"{number:,}"
                for each in (result.wanted[month], result.found[month])
                for number in (each.flights, each.distance, each.air_time)
            ),
        )
        for month in sorted(result.wanted)
    ]
    columns = ("month", "flights in", "miles", "minutes", "flights out", "miles", "minutes")
    title = "by month: the csv input and the Parquet output (both computed by pandas)"
    return plain_table(title, columns, rows)


def _letters_table(result: DemoResult) -> Table:
    rows = [(each.place, each.error[:80], each.line[:60]) for each in result.dead_letters]
    return plain_table(
        "dead letters of the bad lines in the input", ("place", "cause", "line"), rows
    )


if __name__ == "__main__":
    sys.exit(main())
