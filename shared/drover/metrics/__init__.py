"""Metrics for Prometheus that every process exports: values, the table of all metrics, the
endpoint.

Code that measures keeps plain numbers (``Tally``, ``Distribution``). Code that owns state adds a
source, which reads the state at each scrape. No work is done for Prometheus between scrapes, and
the series of a removed object ends with the object.
"""
