"""Proto messages to model values and back: ``encode_x`` and ``decode_x``, no decisions.

Spans and times are milliseconds in the model. An enum value that is unspecified or unknown has no
counterpart there: in a request, decoding it raises InvalidArgumentError with the field's name. What
a server says of its state is read as far as it is known, since a newer one must not end the mirror
of an older client.
"""
