"""`drover up` prints each event with its time."""

import json
import re
from datetime import UTC, datetime

import pytest

from drover.cli.commands import cluster
from drover.cli.console import Output


def test_the_events_of_up_have_times(capsys: pytest.CaptureFixture[str]) -> None:
    cluster._print_event(Output.TABLE, "worker-1", "died (SIGKILL), restart in 1 s")
    line = capsys.readouterr().out
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  worker-1 +died \(SIGKILL\), .*\n", line)
    cluster._print_event(Output.JSON, "worker-1", "died")
    event = json.loads(capsys.readouterr().out)
    assert datetime.fromisoformat(event.pop("time")).tzinfo is UTC
    assert event == {"process": "worker-1", "event": "died"}
