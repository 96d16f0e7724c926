"""``make kafka``: the tests' broker for people, in the foreground."""

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

from tests.support.kafka.broker import BrokerOptions, KafkaBroker
from tests.support.kafka.jars import find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.waiting import POLL_INTERVAL_S

DEFAULT_PORT = 9092
_LOOK_INTERVAL_S = 50 * POLL_INTERVAL_S


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 after a requested stop, 1 if the broker could not start or ended unexpectedly."""
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="on the loopback interface"
    )
    parser.add_argument("--data", type=Path, default=Path(".drover") / "kafka", help="is kept")
    told = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        options = BrokerOptions(auto_create_topics=True, port=told.port)
        broker = KafkaBroker(find_jars(), told.data.resolve(), options)
        broker.start()
    except (KafkaMissingError, OSError, AssertionError) as error:
        return _failed(error)
    try:
        _say(f"Kafka serves at {broker.bootstrap}, with its data in {told.data}; Ctrl-C stops it")
        while broker.process.is_alive and not stopped.wait(_LOOK_INTERVAL_S):
            pass
        if not stopped.is_set():
            return _failed(f"the broker ended: {broker.process.shown_log()}")
    finally:
        broker.stop()
    return 0


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(text)
    return port


def _failed(why: object) -> int:
    _say(f"make kafka: {why}", sys.stderr)
    return 1


def _say(line: str, stream: TextIO = sys.stdout) -> None:
    print(line, file=stream, flush=True)


if __name__ == "__main__":
    sys.exit(main())
