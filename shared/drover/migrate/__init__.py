"""Reports what a move of a running Kafka Connect cluster to Drover needs, and prepares the move.

``read`` sends GET requests to Kafka Connect, ``checks`` compares, ``scripts`` has the commands of
the move, ``report`` shows all of it. Only ``http_get`` and ``read`` do input and output.
"""
