"""Ways in and out of a worker: its gRPC services, and its channels to the other workers."""
