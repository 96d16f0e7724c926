"""An engine without Spark for tests of its supervisor; executes the config of ``validate_config``.

Started as the real engine is: below a guard, with the stream's descriptor as its last argument.
"""

import os
import signal
import socket
import subprocess
import sys
import threading

from drover.api.engine.v1 import engine_pb2
from drover.model.ids import TaskId
from drover_worker.engine import framing
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.process_constants import IN_FLIGHT_VARIABLE


def main() -> int:
    sock = socket.socket(fileno=int(sys.argv[-1]))
    in_flight = InFlight(int(os.environ[IN_FLIGHT_VARIABLE]))
    started = threading.Event()

    def hang(connector: str) -> None:
        with in_flight.at_work(connector):
            started.set()
            threading.Event().wait()

    ready = engine_pb2.EngineReady(spark_version="none", process_id=os.getpid())
    framing.send(sock, engine_pb2.EngineReport(ready=ready))
    while (command := framing.receive(sock, engine_pb2.EngineCommand)) is not None:
        if command.HasField("start_engine"):
            continue
        if command.HasField("list_loggers"):  # the supervisor's probe
            framing.send(
                sock,
                engine_pb2.EngineReport(call_id=command.call_id, loggers=engine_pb2.LoggerList()),
            )
            continue
        config = command.validate_config.config
        todo, argument = config["do"], config.get("with", "")
        report = engine_pb2.EngineReport(call_id=command.call_id)
        if todo == "exit":
            sys.stderr.write(f"{argument}\n")
            return 7
        if todo == "end at work":
            with in_flight.at_work(TaskId("bad", 3)):
                os._exit(int(argument))
        if todo == "end after work":
            with in_flight.at_work(argument):
                pass
            os._exit(3)
        if todo == "hang at work":
            threading.Thread(target=hang, args=(argument,), daemon=True).start()
            started.wait()
        if todo == "spin at work":
            with in_flight.at_work(argument):
                while True:
                    pass
        if todo == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if todo == "ignore":
            continue
        if todo == "ignore SIGTERM":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if todo == "spawn":
            # a child that leaves the session, the process group and its parent
            script = "import os,signal; os.setsid(); os.fork() and os._exit(0); signal.pause()"
            subprocess.run([sys.executable, "-c", script], check=True)
        if todo == "fail":
            report.failure.message = argument
        elif todo == "garbage":
            sock.sendall(b"\xff\xff\xff\xff")
            continue
        elif todo == "replace":
            report.call_id = 0
            report.replacement_requested.reason = argument
        elif todo in ("delay", "start"):
            report.done.SetInParent()
            delayed = engine_pb2.StartDelayed(reason=argument)
            news = {"start_delayed": delayed} if todo == "delay" else {"ready": ready}
            framing.send(sock, engine_pb2.EngineReport(**news))
        elif todo == "report":
            report.done.SetInParent()
            lost = engine_pb2.ConnectorFailed(connector=argument)
            framing.send(sock, engine_pb2.EngineReport(connector_failed=lost))
        else:
            report.validation.values.add(value=argument)
        framing.send(sock, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
