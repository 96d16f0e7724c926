"""The demo of `make run`: real rows pass through a cluster while workers are killed."""
