"""Records as JSON: schemas, columns and single values.

There are two forms (``form``). CONNECT is Kafka Connect's: what JsonConverter writes, and what
defaults of schemas and typed headers hold. PLAIN is for readers that know no schema: files of JSON
lines, requests, consoles, columns of databases.

- ``schema_writer`` and ``schema_parser``: Kafka Connect's schemas as JSON.
- ``encode`` and ``decode``: whole columns, by Arrow's kernels.
- ``values``: one parsed value of JSON as a value of a schema, and defaults of schemas.
- ``schemaless``: values without a schema, which batches hold as JSON texts.
"""
