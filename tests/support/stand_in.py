"""A small program that behaves like a service to its supervisor: it serves grpc.health.v1.

``python stand_in.py HOST:PORT [die|deaf|mute] [child] [/FILE] ["why REASON"]``: *die* stops at once
with an error on its last line, *deaf* ignores SIGTERM, *mute* never serves, *child* has a child
process, with a file it serves only while the file exists, and *why* is sent with each answer.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from drover.rpc import WHY_NOT_SERVING_KEY

_WHY = "why "
_STATUS = {False: "NOT_SERVING", True: "SERVING"}


class _Explained(health.HealthServicer):
    def __init__(self, whys: Sequence[str]) -> None:
        super().__init__()
        self._whys = [(WHY_NOT_SERVING_KEY, each) for each in whys]

    def Check(self, request: Any, context: Any) -> Any:
        context.set_trailing_metadata(self._whys)
        return super().Check(request, context)


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main(address: str, *habits: str) -> int:
    if "die" in habits:
        say("some words before")
        say("stand-in: cannot go on: the cause")
        return 3
    stopped = threading.Event()
    if "deaf" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if "child" in habits:
        subprocess.Popen(["sleep", "600"])
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
    servicer = _Explained([each.removeprefix(_WHY) for each in habits if each.startswith(_WHY)])
    files = [Path(each) for each in habits if each.startswith("/")]

    def tell() -> None:
        serves = "mute" not in habits and all(each.exists() for each in files)
        servicer.set("", health_pb2.HealthCheckResponse.ServingStatus.Value(_STATUS[serves]))

    tell()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    say("stand-in serves")
    # a signal that another thread receives does not wake an endless wait of the main thread
    while not stopped.wait(0.1):
        tell()
    say("stand-in stopped in good order")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
