"""Kafka Connect's REST API over Drover's workers.

``table`` has all resources. ``application`` makes the checks that all of them share, ``handlers``
execute the operations through ``call``, and ``path``, ``negotiate``, ``body``, ``errors`` and
``cors`` are pure.
"""
