"""The causes of failures that plugins raise: their own, or a system's."""

import socket

from drover.connector import CredentialsRejectedError, RetriableError
from drover.dataplane.answers import with_causes
from drover.model.failures import FailureCause
from drover.pipeline import RecordFailedError


def cause_of_failure(error: BaseException) -> FailureCause:
    """Whether a system's outage or a rejection of credentials is behind ``error``, else PLUGIN.

    Connection errors of Python itself are outages too: plugins need not convert them.
    """
    causes = list(with_causes(error))
    if any(isinstance(each, RecordFailedError) for each in causes):
        return FailureCause.PLUGIN
    if any(isinstance(each, CredentialsRejectedError) for each in causes):
        return FailureCause.CREDENTIALS
    outages = (RetriableError, ConnectionError, TimeoutError, socket.gaierror)
    if any(isinstance(each, outages) for each in causes):
        return FailureCause.OUTAGE
    return FailureCause.PLUGIN
