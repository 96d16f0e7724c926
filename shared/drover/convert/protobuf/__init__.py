"""Protobuf with schemas in a registry, in the format and with the conventions of Confluent's
converter.

``descriptors`` has protoc read the text of schemas, ``connect_schemas`` and ``proto_schemas`` lead
from them to Kafka Connect's and back, ``wire``, ``decode`` and ``encode`` handle whole columns.
"""
