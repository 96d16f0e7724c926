"""The services of a Drover cluster; each is started with ``python -m services.<name>``."""
