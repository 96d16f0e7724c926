"""The job of `make run`: real rows through a whole cluster while workers are killed."""
