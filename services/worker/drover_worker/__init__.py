"""A worker: a herder that decides what runs here, and an engine that runs it.

Start here: ``worker.py`` wires the parts, ``core/herder.py`` decides, ``shell/herder_loop.py``
drives it, ``shell/instruction_runner.py`` and ``shell/engine_link.py`` run its instructions.
``admin/`` has the use cases of the admin API, ``adapters/`` the gRPC services, ``server.py`` their
two ports.
"""
