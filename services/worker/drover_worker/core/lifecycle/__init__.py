"""The lifecycle of each connector and task that is assigned to this worker."""
