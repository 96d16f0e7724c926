"""Statuses and active topics in the status store, and this worker's corrections of them."""
