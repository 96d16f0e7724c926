import pytest

from tests.support.herder_driver import HerderDriver


@pytest.fixture
def herder() -> HerderDriver:
    """A herder that has seen nothing yet; the driver validates it after every step."""
    return HerderDriver()
