"""The transform Sql: one SELECT over a batch of records, run by DuckDB in the pass itself.

``statement`` parses and checks what it is, ``functions`` says what it may call, ``engine`` runs it.
"""
