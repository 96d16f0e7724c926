"""Claims of tasks: which worker may commit a task's offsets."""
