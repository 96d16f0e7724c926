"""See ARCHITECTURE.md."""

import drover.rpc  # noqa: F401 - must set gRPC's environment before grpc is imported
