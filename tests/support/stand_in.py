"""A small program that behaves like a service to its supervisor: it serves grpc.health.v1.

``python stand_in.py HOST:PORT [die|deaf|mute] [child]``: *die* stops at once with an error on its
last line, *deaf* ignores SIGTERM, *mute* never serves, *child* has a child of its own.
"""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


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
    servicer = health.HealthServicer()
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    servicer.set("", statuses.Value("NOT_SERVING" if "mute" in habits else "SERVING"))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    say("stand-in serves")
    # a signal that reaches another thread does not wake an endless wait of the main one
    while not stopped.wait(0.1):
        pass
    say("stand-in stopped in good order")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
