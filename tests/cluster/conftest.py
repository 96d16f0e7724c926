"""One cluster of containers for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.compose import (
    ComposeCluster,
    NoEngineError,
    compose_command,
    three_commands,
)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    """A cluster built with the guide's three commands, with a database and Prometheus."""
    try:
        compose = compose_command()
    except NoEngineError as error:
        pytest.exit(str(error), returncode=2)
    made = ComposeCluster(compose, tmp_path_factory.mktemp("cluster"))
    made.prepare()
    made.down()
    try:
        for command in three_commands():
            made.follow(command)
        # named explicitly: Debian has no package for the Grafana of the same profile
        made.do("--profile", "observability", "up", "--build", "--detach", "prometheus")
        made.wait_for_workers(2)
        yield made
    finally:
        made.down()
