"""The fixtures; a folder whose tests want them imports them in its ``conftest.py``.

However many folders do so, a session has one shared broker: it is kept with pytest's configuration.
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
#: Those of the mortal broker: the two first may do what ACLs allow, and the client with TLS all.
USERS = SaslUsers({"drover": "secret-1", "eve": "secret-2"}, super_user="CN=client")
_MORTAL_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@dataclass(slots=True)
class _Session:
    """What a session has found out and started so far."""

    choice: Choice | KafkaMissingError | None = None
    jars: KafkaJars | KafkaMissingError | None = None
    kafka: Kafka | None = None
    mortal: KafkaBroker | None = None


_SESSION = pytest.StashKey[_Session]()


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    """The broker that all tests share; it is started for the first that asks."""
    session = _session(pytestconfig)
    if session.kafka is None:
        stack = ExitStack()
        pytestconfig.add_cleanup(stack.close)
        directory = tmp_path_factory.mktemp("kafka")
        session.kafka = start_chosen(_choice(session), directory, stack)
    return session.kafka


@pytest.fixture(scope="session")
def kafka_jars(pytestconfig: pytest.Config) -> KafkaJars:
    """The jars, for brokers and workers of a test's own; there are none where Docker stands in."""
    return _jars(_session(pytestconfig))


def skip_without_kafka(item: pytest.Item) -> None:
    """What a ``conftest.py`` calls as ``pytest_runtest_setup``.

    The fixtures would skip by themselves, but each test with a line of its own; from here all that
    lack the same thing share one.
    """
    wanted = getattr(item, "fixturenames", ())
    session = _session(item.config)
    if "kafka" in wanted:
        _choice(session)
    if "kafka_jars" in wanted:
        _jars(session)


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """What the names of a test's topics, groups and transactional ids begin with."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:_NAME_CHARACTERS].strip("-")
    return f"{name}-{uuid4().hex[:8]}-"


@pytest.fixture
def mortal_broker(
    pytestconfig: pytest.Config, kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory
) -> KafkaBroker:
    """A second broker that tests share: they may kill, freeze or stop it; each finds it running.

    It has the users ``USERS``, takes tokens from them as well, has a listener with TLS, and soon
    ends transactions of the dead.
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
    """Starts workers of Kafka Connect, by default on the shared broker, topics of its own.

    ``connect_cluster(bootstrap=..., options=..., **fields_of_ConnectOptions)``; a second call makes
    a second worker of the same cluster.
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
    """Looked for once: an mvn without a network takes its time to say so."""
    if session.choice is None:
        try:
            session.choice = choose()
        except KafkaMissingError as error:
            session.choice = error
    if isinstance(session.choice, KafkaMissingError):
        give_up(session.choice)
    return session.choice


def _jars(session: _Session) -> KafkaJars:
    """Where there is no Kafka at all the reason is that of everybody."""
    if session.jars is None:
        choice = _choice(session)
        try:
            session.jars = choice if isinstance(choice, KafkaJars) else find_jars()
        except KafkaMissingError as error:
            session.jars = KafkaMissingError(f"no jars for a Kafka of the test's own: {error}")
    if isinstance(session.jars, KafkaMissingError):
        give_up(session.jars)
    return session.jars
