"""The transform Sql: DuckDB runs one SELECT over each batch of records.

``statement`` parses and checks the SELECT, ``functions`` lists the allowed functions, ``engine``
configures DuckDB.
"""
