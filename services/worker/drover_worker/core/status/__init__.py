"""What the status store holds about connectors and tasks, and how this worker corrects it."""
