"""A cluster of processes on this machine: the supervisor of `drover up` and `make run`."""

import drover.rpc  # noqa: F401 - must set gRPC's environment before grpc is imported
