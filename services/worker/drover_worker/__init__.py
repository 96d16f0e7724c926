"""A worker: a herder that decides what runs here, and an engine that runs it.

Start here: ``worker.py`` wires the parts, ``core/herder.py`` decides, ``herder_loop.py`` drives it,
``executor.py`` and ``engine_link.py`` carry out what it wants. ``admin/`` has the use cases of the
admin API, ``adapters/`` the services that call them, ``server.py`` the ports those are served at.
"""
