"""Converts model values to proto messages and back: ``encode_x`` and ``decode_x``, without logic.

Durations and times are milliseconds in the model. An unspecified or unknown enum value has no
counterpart in the model: in a request, decoding it raises InvalidArgumentError with the field's
name. In a server's response, unknown values are replaced or skipped, so an older client can still
read from a newer server.
"""
