"""What this worker runs: the lifecycle of each connector and task of its assignment."""
