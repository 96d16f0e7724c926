"""What every gRPC server of Drover shares: settings, logs, errors, interceptors, drain."""

import os
import re

# Read by gRPC's core when it is first imported. Drover forks nothing after gRPC has started (its
# child processes are exec'ed), and a refused port is told in one line of our own.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

REQUEST_ID_KEY = "x-request-id"
#: Who asks for a change, such as user@host; for the history of connectors.
AUTHOR_KEY = "drover-author"
#: In the trailing metadata of a health check that is answered NOT_SERVING: why, for people.
WHY_NOT_SERVING_KEY = "drover-why-not-serving"
#: What may stand in a header and in a log; other ids are replaced.
REQUEST_ID_PATTERN = re.compile(r"[!-~]{1,128}")
#: gRPC's default for received messages; larger ones are refused by the transport.
MESSAGE_MAX_BYTES = 4 * 1024 * 1024
