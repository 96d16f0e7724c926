"""The worker's gRPC services, and its channels to other workers."""
