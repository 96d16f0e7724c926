"""Signs calls to other workers and verifies the signatures of their calls."""

from collections.abc import Sequence

from drover.errors import PermissionDeniedError, Reason, UnauthenticatedError, UnavailableError
from drover.security.signatures import NO_KEY, Signature, sign
from drover_worker.core.config.session_keys import SessionKeys
from drover_worker.core.rebalance.membership import Membership


class CallSignatures:
    """Signs and verifies calls with session keys, if the group requires signatures.

    In other groups calls need no signature, and none is verified.

    Workers do not enter a generation at the same moment, and a call may arrive late. So a worker of
    a group that signs receives calls that others sent before they had a key. Those callers send
    NO_KEY and are asked to retry: the retry is signed. NO_KEY never admits a call.

    Args:
        keys: The session keys that this worker has read.
        membership: Knows whether the group requires signatures.
        algorithm: The algorithm of this worker's signatures.
        accepted: The algorithms of accepted signatures.
    """

    def __init__(
        self,
        keys: SessionKeys,
        membership: Membership,
        *,
        algorithm: str,
        accepted: Sequence[str],
    ) -> None:
        self._keys = keys
        self._membership = membership
        self._algorithm = algorithm
        self._accepted = accepted

    def sign(self, method: str, body: bytes) -> str:
        """The metadata of a call: its signature, or NO_KEY without a key in a group that does not
        sign. A worker that has a key always signs.

        Raises:
            UnavailableError: SESSION_KEY_UNKNOWN, the group signs and this worker has no key yet.
        """
        key = self._keys.current
        if key is not None:
            return sign(key, self._algorithm, method, body).encode()
        if self._membership.signs_calls:
            raise _unknown("this worker has not read the session key that signs its calls yet")
        return NO_KEY

    def check(self, method: str, body: bytes, shown: str, now_ms: int) -> None:
        """Verify the signature of a call.

        Args:
            method: The gRPC method's full name.
            body: The request's bytes.
            shown: The result of the caller's ``sign``; empty if the caller sent nothing.
            now_ms: The time.

        Raises:
            UnavailableError: SESSION_KEY_UNKNOWN, a retry may succeed.
            UnauthenticatedError: MISSING_CREDENTIALS, the call is not signed.
            PermissionDeniedError: INVALID_SIGNATURE.
        """
        if not self._membership.signs_calls:
            return
        if self._keys.current is None:
            raise _unknown("this worker has not read the session key that verifies calls yet")
        if shown == NO_KEY:
            raise _unknown("the caller had not read the session key of this group yet")
        if not shown:
            raise UnauthenticatedError(
                Reason.MISSING_CREDENTIALS,
                "the call is not signed: this address accepts calls of workers of its group only,"
                " which sign them (DROVER_CONNECT_PROTOCOL=sessioned)",
            )
        try:
            signature = Signature.decode(shown)
        except ValueError as error:
            raise _invalid(f"the call's signature is malformed: {error}") from None
        if signature.algorithm not in self._accepted:
            raise _invalid(
                f"the signature algorithm {signature.algorithm[:30]!r} is not accepted: add it to"
                " DROVER_INTER_WORKER_VERIFICATION_ALGORITHMS of this worker, or let the caller"
                f" sign with {self._accepted[0]}"
            )
        self._check_by_key(signature, method, body, now_ms)

    def _check_by_key(self, signature: Signature, method: str, body: bytes, now_ms: int) -> None:
        key = self._keys.find(signature.key_ms, now_ms)
        if key is None:
            raise _unknown(
                "the call is signed with a session key that this worker has not read: one of the"
                " two workers has not read the config log to its end"
            )
        if not signature.is_of(key, method, body):
            raise _invalid(
                "the call's signature does not match this group's session key: a program outside of"
                " the group made it, or it belongs to another call"
            )


def _unknown(text: str) -> UnavailableError:
    return UnavailableError(Reason.SESSION_KEY_UNKNOWN, f"{text}: retry")


def _invalid(text: str) -> PermissionDeniedError:
    return PermissionDeniedError(Reason.INVALID_SIGNATURE, text)
