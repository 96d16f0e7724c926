"""See ARCHITECTURE.md."""

import drover.rpc  # noqa: F401 - its settings for gRPC come before gRPC itself
