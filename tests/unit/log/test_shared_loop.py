"""The event loop that all aiokafka clients share."""

import asyncio
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from drover.log.kafka import aiokafka_client

#: How long the first loop waits for a second one, which must not be created.
ANOTHER_S = 0.2


def copy_of(module: ModuleType) -> ModuleType:
    """A fresh copy of the module, in which no client exists yet."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location("copied", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    return copied


def test_tasks_that_start_at_once_have_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.AbstractEventLoop] = []
    two_at_once = threading.Event()

    def new_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.SelectorEventLoop())
        if len(made) > 1:
            two_at_once.set()
        two_at_once.wait(ANOTHER_S)
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", new_loop)
    client = copy_of(aiokafka_client)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: client.shared_loop(), range(4)))
    for each in made:
        each.call_soon_threadsafe(each.stop)
    assert found == made * 4
