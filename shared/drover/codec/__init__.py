"""Proto messages to model values and back: ``encode_x`` and ``decode_x``, no decisions.

Spans and times are milliseconds in the model. An enum value that is unspecified or unknown has no
counterpart there: decoding it raises InvalidArgumentError with the field's name.
"""
