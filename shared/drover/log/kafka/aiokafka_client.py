"""Brokers by aiokafka: how it reaches those that librdkafka's settings name, and its errors in
librdkafka's terms.

Everything of it runs on one event loop of the process; callers are threads.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from aiokafka.errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    KafkaConnectionError,
    NodeNotReadyError,
    ProducerFenced,
)
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException

from drover.log.storage import KafkaStorage

T = TypeVar("T")

#: Settings of librdkafka that say how to reach brokers, as far as aiokafka has the like.
_REACH = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)
#: And those that the producer goes by, or that only librdkafka has a use for.
_OTHERS = frozenset(
    {
        "compression.codec",
        "compression.type",
        "fetch.message.max.bytes",
        "message.max.bytes",
        "socket.timeout.ms",
        "transaction.timeout.ms",
    }
)
_SASL = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # errors are told by who called


def can_reach(storage: KafkaStorage) -> bool:
    """Whether aiokafka knows how to reach the brokers; else librdkafka is to be taken."""
    config = storage.client_config
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "PLAIN"
    return config.keys() <= _REACH | _OTHERS and mechanism in _SASL


def reach(storage: KafkaStorage) -> Mapping[str, Any]:
    """How aiokafka reaches the brokers that librdkafka's settings name."""
    config = storage.client_config
    protocol = config.get("security.protocol", "plaintext").upper()
    found: dict[str, Any] = {
        "bootstrap_servers": storage.bootstrap_servers,
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(config)
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = config.get("sasl.mechanism") or config.get("sasl.mechanisms")
        found["sasl_plain_username"] = config.get("sasl.username")
        found["sasl_plain_password"] = config.get("sasl.password")
    return found


def _tls(config: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
    if config.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if "ssl.certificate.location" in config:
        context.load_cert_chain(
            config["ssl.certificate.location"],
            config.get("ssl.key.location"),
            config.get("ssl.key.password"),
        )
    return context


_lock = threading.Lock()


def shared_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all clients of this process."""
    with _lock:  # two threads at once would each make what is cached
        return _made_once()


@cache
def _made_once() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # such as of a producer that is dropped with its connections
    loop.set_exception_handler(lambda _loop, _context: None)
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def submit(work: Coroutine[Any, Any, T], limit_s: float) -> "Future[T]":
    """Begin it on the loop."""
    return asyncio.run_coroutine_threadsafe(_limited(work, limit_s), shared_loop())


async def _limited(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    async with asyncio.timeout(limit_s):  # unlike wait_for without a task of its own
        return await work


def result_of(future: "Future[T]") -> T:
    """Wait for it.

    Raises:
        KafkaException: What aiokafka raised, or that it took too long. It asserts that it is in the
            state for what it is told to do.
    """
    try:
        return future.result()
    except (AioKafkaError, AssertionError, TimeoutError, OSError) as error:
        raise KafkaException(as_kafka_error(error)) from error


def as_kafka_error(error: Exception) -> KafkaError:
    """The error of librdkafka that says the same."""
    if isinstance(error, ProducerFenced):
        return KafkaError(KafkaError.PRODUCER_FENCED)
    if isinstance(error, BrokerResponseError):
        return KafkaError(error.errno)
    if isinstance(error, AuthenticationFailedError):
        return KafkaError(KafkaError._AUTHENTICATION, str(error))
    if isinstance(error, AssertionError):
        return KafkaError(KafkaError._STATE, str(error))
    if isinstance(error, TimeoutError):
        return KafkaError(KafkaError._TIMED_OUT)
    if isinstance(error, KafkaConnectionError | NodeNotReadyError | OSError):
        return KafkaError(KafkaError._TRANSPORT, str(error))
    return KafkaError(KafkaError._FAIL, str(error))
