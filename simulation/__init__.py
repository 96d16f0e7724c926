"""Seeded simulations of whole clusters on the real cores: `make simulate SEED=n` replays one."""
