"""A worker: a herder that decides what runs here, and an engine that runs it.

Start here: ``worker.py`` wires the parts, ``core/herder.py`` decides, ``herder_loop.py`` drives it,
``instruction_runner.py`` and ``engine_link.py`` run its instructions, ``server.py`` is the admin
API.
"""
