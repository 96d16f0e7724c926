"""Drover: connectors, run as Spark tasks, over a fleet of workers.

Authors of connectors import ``drover.connector``, tools ``drover.client``, and tests of either
``drover.testing``.
"""

__version__ = "0.1.0"
