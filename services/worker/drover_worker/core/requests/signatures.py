"""Signs calls of other workers, and decides which of theirs are let in."""

from collections.abc import Sequence

from drover.errors import PermissionDeniedError, Reason, UnauthenticatedError, UnavailableError
from drover.security.signatures import NO_KEY, Signature, sign
from drover_worker.core.config.session_keys import SessionKeys
from drover_worker.core.rebalance.membership import Membership


class CallSignatures:
    """By the session keys that this worker has read, while the group wants signed calls.

    A call that is signed is checked in such a group alone: in another one nobody has to sign.

    Workers do not enter a generation at the same moment, and a call may arrive late. So a worker of
    a group that signs receives calls that others sent before they had a key. Those callers send
    NO_KEY and are asked to retry: the retry is signed. NO_KEY never admits a call.

    Args:
        keys: What is signed with, and checked by.
        membership: Knows whether the group wants signatures.
        algorithm: What this worker signs by.
        accepted: The algorithms of signatures that it lets in.
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
        """What is sent with a call: its signature, or NO_KEY in a group that does not sign.

        A worker that has a key always signs.

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
        """Raise the error of a call that is not let in.

        Args:
            method: gRPC's name of it.
            body: The request's bytes.
            shown: What ``sign`` of the caller returned; empty if the caller sent nothing.
            now_ms: The time.

        Raises:
            UnavailableError: SESSION_KEY_UNKNOWN, the same call can be let in a little later.
            UnauthenticatedError: MISSING_CREDENTIALS, it is not signed.
            PermissionDeniedError: INVALID_SIGNATURE.
        """
        if not self._membership.signs_calls:
            return
        if self._keys.current is None:
            raise _unknown("this worker has not read the session key that checks calls yet")
        if shown == NO_KEY:
            raise _unknown("the caller had not read the session key of this group yet")
        if not shown:
            raise UnauthenticatedError(
                Reason.MISSING_CREDENTIALS,
                "the call is not signed: only workers of this group call each other here, and they"
                " speak the protocol sessioned",
            )
        try:
            signature = Signature.decode(shown)
        except ValueError as error:
            raise _invalid(f"the call's signature cannot be read: {error}") from None
        if signature.algorithm not in self._accepted:
            raise _invalid(
                f"calls signed by {signature.algorithm[:30]!r} are not let in: add it to"
                " DROVER_INTER_WORKER_VERIFICATION_ALGORITHMS of this worker, or have the caller"
                f" sign by {self._accepted[0]}"
            )
        self._check_by_key(signature, method, body, now_ms)

    def _check_by_key(self, signature: Signature, method: str, body: bytes, now_ms: int) -> None:
        key = self._keys.find(signature.key_ms, now_ms)
        if key is None:
            raise _unknown(
                "the call is signed with another session key than the one that this worker has"
                " read: one of the two has yet to read the config log to its end"
            )
        if not signature.is_of(key, method, body):
            raise _invalid(
                "the call's signature is not one of this group's session key: it was not made by a"
                " worker of this group, or for another call"
            )


def _unknown(text: str) -> UnavailableError:
    return UnavailableError(Reason.SESSION_KEY_UNKNOWN, f"{text}; the call can be made again")


def _invalid(text: str) -> PermissionDeniedError:
    return PermissionDeniedError(Reason.INVALID_SIGNATURE, text)
