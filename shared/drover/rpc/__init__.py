"""Shared parts of Drover's gRPC servers: settings, logs, errors, interceptors, drain."""

import os
import re

# gRPC's core reads these at its first import. Drover never forks after gRPC has started (it execs
# its child processes), and it reports a port in use in its own log line.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

REQUEST_ID_KEY = "x-request-id"
#: The author of a change, such as user@host, for the history of connectors.
AUTHOR_KEY = "drover-author"
#: The token of a caller, as ``Bearer TOKEN``.
TOKEN_KEY = "authorization"
#: The trailing metadata of a NOT_SERVING health check response: the reason, as text.
WHY_NOT_SERVING_KEY = "drover-why-not-serving"
#: Ids that are valid in a header and in a log; other ids are replaced.
REQUEST_ID_PATTERN = re.compile(r"[!-~]{1,128}")
#: gRPC's default for received messages; the transport rejects larger ones.
MESSAGE_MAX_BYTES = 4 * 1024 * 1024
