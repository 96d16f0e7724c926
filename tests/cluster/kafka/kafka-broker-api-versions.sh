#!/usr/bin/python3
"""Asks the broker for its API versions, as Kafka's own program of that name does."""

import socket
import struct
import sys

host, port = sys.argv[-1].split(":")
with socket.create_connection((host, int(port)), timeout=5) as broker:
    request = struct.pack(">hhih", 18, 0, 1, -1)  # the key, its version, the request's number, nobody
    broker.sendall(struct.pack(">i", len(request)) + request)
    _, number, error = struct.unpack(">iih", broker.recv(10, socket.MSG_WAITALL))
sys.exit((number, error) != (1, 0))
