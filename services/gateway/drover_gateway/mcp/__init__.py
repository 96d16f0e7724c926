"""The MCP server: tools for agents that operate connectors. Read-only unless writes are on.

``tools`` has the tools, ``actions`` the writes with ``plans`` that seal them, ``results`` the
bounds of results, ``app`` the servers. ``python -m drover_gateway.mcp`` serves one client on stdio.
"""
