"""Channels to other workers."""

import grpc.aio

from drover.client.secure import Connect, plaintext
from drover.client.worker import Sign, WorkerClient, unsigned


class WorkerChannels:
    """One channel to each other worker, opened at its first use."""

    def __init__(self, connect: Connect = plaintext, sign: Sign = unsigned) -> None:
        self._connect = connect
        self._sign = sign
        self._channels: dict[str, grpc.aio.Channel] = {}

    def get(self, address: str) -> WorkerClient:
        """The client for the worker at host:port."""
        if address not in self._channels:
            self._channels[address] = self._connect(address)
        return WorkerClient(self._channels[address], self._sign)

    async def close(self) -> None:
        """Close every channel."""
        for opened in self._channels.values():
            await opened.close()
        self._channels.clear()
