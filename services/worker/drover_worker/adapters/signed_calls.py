"""Signatures of calls between workers, in gRPC metadata."""

from typing import Any

import grpc.aio
import structlog

from drover.client.worker import Metadata
from drover.clock import Clock
from drover.errors import PermissionDeniedError, UnauthenticatedError
from drover.security.signatures import SIGNATURE_KEY
from drover_worker.core.requests.signatures import CallSignatures

#: The shortest time between two log events about rejected calls.
_LOG_PAUSE_MS = 10_000

_log = structlog.get_logger("drover.worker")

Context = grpc.aio.ServicerContext[Any, Any]


class SignedCalls:
    """Signs this worker's calls to other workers, and verifies their calls."""

    def __init__(self, signatures: CallSignatures, clock: Clock) -> None:
        self._signatures = signatures
        self._clock = clock
        self._logged_ms = -_LOG_PAUSE_MS
        self._refused_count = 0

    def sign(self, method: str, body: bytes) -> Metadata:
        """The signature metadata of a call; see ``drover.client.worker.Sign``."""
        return ((SIGNATURE_KEY, self._signatures.sign(method, body)),)

    def check(self, method: str, body: bytes, context: Context) -> None:
        """Verify the signature of a call; log and raise if it is rejected."""
        shown = ""
        for key, value in context.invocation_metadata() or ():
            if key == SIGNATURE_KEY and isinstance(value, str):
                shown = value
        try:
            self._signatures.check(method, body, shown, self._clock.now_ms())
        except (PermissionDeniedError, UnauthenticatedError) as error:
            self._log_rejected(method, context.peer(), error.message)
            raise

    def _log_rejected(self, method: str, peer: str, why: str) -> None:
        self._refused_count += 1
        now_ms = self._clock.now_ms()
        if now_ms - self._logged_ms < _LOG_PAUSE_MS:
            return
        self._logged_ms = now_ms
        _log.warning(
            "a call between workers was rejected",
            method=method.rpartition("/")[2],
            peer=peer,
            count=self._refused_count,
            why=why,
        )
        self._refused_count = 0
