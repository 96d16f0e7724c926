"""Signatures of calls between workers, as gRPC carries them."""

from typing import Any

import grpc.aio
import structlog

from drover.client.worker import Metadata
from drover.clock import Clock
from drover.errors import PermissionDeniedError, UnauthenticatedError
from drover.security.signatures import SIGNATURE_KEY
from drover_worker.core.requests.signatures import CallSignatures

#: Between two lines about calls that are refused, however many there are.
_LOG_PAUSE_MS = 10_000

_log = structlog.get_logger("drover.worker")

Context = grpc.aio.ServicerContext[Any, Any]


class SignedCalls:
    """Signs this worker's calls of other workers, and checks theirs."""

    def __init__(self, signatures: CallSignatures, clock: Clock) -> None:
        self._signatures = signatures
        self._clock = clock
        self._logged_ms = -_LOG_PAUSE_MS
        self._refused_count = 0

    def sign(self, method: str, body: bytes) -> Metadata:
        """The metadata that signs a call; see ``drover.client.worker.Sign``."""
        return ((SIGNATURE_KEY, self._signatures.sign(method, body)),)

    def check(self, method: str, body: bytes, context: Context) -> None:
        """Raise the error of a call that is not let in, and tell operators of it."""
        shown = ""
        for key, value in context.invocation_metadata() or ():
            if key == SIGNATURE_KEY and isinstance(value, str):
                shown = value
        try:
            self._signatures.check(method, body, shown, self._clock.now_ms())
        except (PermissionDeniedError, UnauthenticatedError) as error:
            self._refused(method, context.peer(), error.message)
            raise

    def _refused(self, method: str, peer: str, why: str) -> None:
        self._refused_count += 1
        now_ms = self._clock.now_ms()
        if now_ms - self._logged_ms < _LOG_PAUSE_MS:
            return
        self._logged_ms = now_ms
        _log.warning(
            "a call between workers is refused",
            method=method.rpartition("/")[2],
            peer=peer,
            count=self._refused_count,
            why=why,
        )
        self._refused_count = 0
