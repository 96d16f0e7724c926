"""The Kafka fixtures; a folder that uses them imports them in its ``conftest.py``.

A session has one shared broker for any number of folders: pytest's configuration holds it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.kafka.broker import BrokerOptions, KafkaBroker, SaslUsers
from tests.support.kafka.choice import Choice, Kafka, choose, give_up, start_chosen
from tests.support.kafka.connect import ConnectOptions, KafkaConnect
from tests.support.kafka.jars import KafkaJars, find_jars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.kafka.tls import Tls, make_certificate
from tests.support.kafka.tokens import TokenKeys

_NAME_CHARACTERS = 40
#: The mortal broker's users: the first two have ACLs, and the TLS client may do everything.
USERS = SaslUsers({"drover": "secret-1", "eve": "secret-2"}, super_user="CN=client")
_MORTAL_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@dataclass(slots=True)
class _Session:
    """The findings and started servers of a session."""

    choice: Choice | KafkaMissingError | None = None
    jars: KafkaJars | KafkaMissingError | None = None
    kafka: Kafka | None = None
    mortal: KafkaBroker | None = None


_SESSION = pytest.StashKey[_Session]()


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    """The broker that all tests share; the first test that needs it starts it."""
    session = _session(pytestconfig)
    if session.kafka is None:
        stack = ExitStack()
        pytestconfig.add_cleanup(stack.close)
        directory = tmp_path_factory.mktemp("kafka")
        session.kafka = start_chosen(_choice(session), directory, stack)
    return session.kafka


@pytest.fixture(scope="session")
def kafka_jars(pytestconfig: pytest.Config) -> KafkaJars:
    """The jars, for a test's own brokers and workers; skips where Docker provides the broker."""
    return _jars(_session(pytestconfig))


def skip_without_kafka(item: pytest.Item) -> None:
    """Called by a ``conftest.py`` as ``pytest_runtest_setup``.

    If the fixtures skipped, each test would print its own line; skips from here share one line per
    reason.
    """
    wanted = getattr(item, "fixturenames", ())
    session = _session(item.config)
    if "kafka" in wanted:
        _choice(session)
    if "kafka_jars" in wanted:
        _jars(session)


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """The prefix of a test's topics, groups and transactional ids."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:_NAME_CHARACTERS].strip("-")
    return f"{name}-{uuid4().hex[:8]}-"


@pytest.fixture
def mortal_broker(
    pytestconfig: pytest.Config, kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory
) -> KafkaBroker:
    """A second shared broker that tests may kill, freeze or stop; each test finds it running.

    It has the users ``USERS`` and token logins, a TLS listener, and aborts transactions of dead
    producers soon.
    """
    session = _session(pytestconfig)
    if session.mortal is None:
        directory = tmp_path_factory.mktemp("mortal")
        broker, client = (
            make_certificate(kafka_jars, directory, name) for name in ("broker", "client")
        )
        options = BrokerOptions(
            users=USERS,
            tls=Tls(broker, client),
            tokens=TokenKeys.written(directory),
            settings=_MORTAL_SETTINGS,
        )
        session.mortal = KafkaBroker(kafka_jars, directory / "data", options)
        pytestconfig.add_cleanup(session.mortal.stop)
    session.mortal.revive()
    return session.mortal


@pytest.fixture
def connect_cluster(
    request: pytest.FixtureRequest, kafka_jars: KafkaJars, topic_prefix: str, tmp_path: Path
) -> Iterator[Callable[..., KafkaConnect]]:
    """Starts workers of Kafka Connect, by default on the shared broker, with the test's own topics.

    ``connect_cluster(bootstrap=..., options=..., **fields_of_ConnectOptions)``; a second call
    starts a second worker of the same cluster.
    """
    with ExitStack() as stack:
        count = 0

        def start(
            *, bootstrap: str = "", options: ConnectOptions | None = None, **fields: Any
        ) -> KafkaConnect:
            nonlocal count
            count += 1
            chosen = replace(options or ConnectOptions.named(f"{topic_prefix}connect"), **fields)
            where = bootstrap or request.getfixturevalue("kafka").bootstrap
            worker = KafkaConnect(kafka_jars, where, tmp_path / f"connect-{count}", chosen)
            stack.callback(worker.stop)
            worker.start()
            return worker

        yield start


def _session(config: pytest.Config) -> _Session:
    return config.stash.setdefault(_SESSION, _Session())


def _choice(session: _Session) -> Choice:
    """Determined once: an mvn without a network fails slowly."""
    if session.choice is None:
        try:
            session.choice = choose()
        except KafkaMissingError as error:
            session.choice = error
    if isinstance(session.choice, KafkaMissingError):
        give_up(session.choice)
    return session.choice


def _jars(session: _Session) -> KafkaJars:
    """Without any Kafka, the skip reason is the common one."""
    if session.jars is None:
        choice = _choice(session)
        try:
            session.jars = choice if isinstance(choice, KafkaJars) else find_jars()
        except KafkaMissingError as error:
            session.jars = KafkaMissingError(f"no jars for a Kafka of the test's own: {error}")
    if isinstance(session.jars, KafkaMissingError):
        give_up(session.jars)
    return session.jars
