"""Runs aiokafka with librdkafka's settings, and translates its errors into librdkafka's.

All aiokafka clients of the process run on one event loop; the callers are other threads.
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

#: Connection settings of librdkafka that have an equivalent in aiokafka.
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
#: Settings that do not affect the connection of aiokafka.
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

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # callers log the errors


def can_reach(storage: KafkaStorage) -> bool:
    """Whether aiokafka supports the connection settings; if not, use librdkafka."""
    config = storage.client_config
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "PLAIN"
    return config.keys() <= _REACH | _OTHERS and mechanism in _SASL


def reach(storage: KafkaStorage) -> Mapping[str, Any]:
    """The connection settings of aiokafka that correspond to librdkafka's."""
    config = storage.client_config
    protocol = config.get("security.protocol", "plaintext").upper()
    settings: dict[str, Any] = {
        "bootstrap_servers": storage.bootstrap_servers,
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _tls(config)
    if protocol.startswith("SASL"):
        settings["sasl_mechanism"] = config.get("sasl.mechanism") or config.get("sasl.mechanisms")
        settings["sasl_plain_username"] = config.get("sasl.username")
        settings["sasl_plain_password"] = config.get("sasl.password")
    return settings


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
    """The event loop of all aiokafka clients of this process."""
    with _lock:  # ``cache`` alone would let two threads create a loop each
        return _new_loop()


@cache
def _new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # ignore errors of tasks without a waiter, such as the connections of a dropped producer
    loop.set_exception_handler(lambda _loop, _context: None)
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def submit(work: Coroutine[Any, Any, T], limit_s: float) -> "Future[T]":
    """Start a coroutine on the shared loop; it is cancelled after ``limit_s``."""
    return asyncio.run_coroutine_threadsafe(_limited(work, limit_s), shared_loop())


async def _limited(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    async with asyncio.timeout(limit_s):  # unlike wait_for, creates no task
        return await work


def result_of(future: "Future[T]") -> T:
    """Wait for the result.

    Raises:
        KafkaException: aiokafka's error or a timeout. Assertion errors, by which aiokafka rejects
            calls in a wrong state, are translated too.
    """
    try:
        return future.result()
    except (AioKafkaError, AssertionError, TimeoutError, OSError) as error:
        raise KafkaException(as_kafka_error(error)) from error


def as_kafka_error(error: Exception) -> KafkaError:
    """The equivalent error of librdkafka."""
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
