"""A worker: a herder that decides what runs here, and an engine that runs it.

Start here: ``worker.py`` wires the parts, ``core/herder.py`` decides, ``herder_loop.py`` drives it,
``instruction_runner.py`` and ``engine_link.py`` run its instructions. ``admin/`` has the use cases
of the admin API, ``adapters/`` the services that call them, ``server.py`` the ports of both.
"""
