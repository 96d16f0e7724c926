"""The engine's end of the stream to the herder."""

import os
import socket
import threading

import structlog

from drover.api.engine.v1 import engine_pb2
from drover_worker.engine import framing
from drover_worker.engine.process_constants import ExitCode

log = structlog.get_logger(__name__)


class HerderLink:
    """Sends reports from any thread, reads commands on one.

    When the herder does not read, senders block: that is the back-pressure. When the herder has
    ended, this process exits at once, as its tasks have no owner.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._send_lock = threading.Lock()

    def send(self, report: engine_pb2.EngineReport) -> None:
        """Write a report."""
        frame = framing.encode_frame(report)
        try:
            with self._send_lock:
                self._socket.sendall(frame)
        except OSError:
            self._leave()

    def receive(self) -> engine_pb2.EngineCommand:
        """Wait for the next command."""
        try:
            command = framing.receive(self._socket, engine_pb2.EngineCommand)
        except (OSError, framing.FramingError):
            log.exception("the stream from the herder is broken")
            command = None
        if command is None:
            self._leave()
            raise AssertionError("unreachable")
        return command

    def _leave(self) -> None:
        os._exit(ExitCode.ORPHANED)
