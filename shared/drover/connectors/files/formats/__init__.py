"""Formats of files of rows: CSV, JSON lines, text and Avro, plain or compressed."""
