"""The gateway: Kafka Connect's REST API and the console in front, ``ConnectService`` behind.

Read ``app`` first (what happens to a request), then ``workers`` (calls with the caller's
credential) and ``views`` (statuses and lists from memory). ``rest`` has the table of the REST API,
``console`` the pages for operators, ``server`` the HTTP server with its bounds.
"""

import drover.rpc.lean_structlog  # noqa: F401 - 5 MiB less; must be before structlog is imported
