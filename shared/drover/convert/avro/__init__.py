"""Avro with schemas in a registry, in the format and with the conventions of Confluent's converter.

``schemas`` parses Avro's schemas, ``connect_schemas`` and ``avro_schemas`` lead from them to Kafka
Connect's and back, ``decode`` and ``encode`` handle whole columns of records, and ``registry`` asks
the registry.
"""
