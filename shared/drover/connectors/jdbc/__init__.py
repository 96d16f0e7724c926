"""Tables of databases as topics, and topics as tables."""
