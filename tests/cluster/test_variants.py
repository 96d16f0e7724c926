"""Compose accepts every variant of the cluster in deploy/README.md, with the services it adds."""

import re
import subprocess

import pytest
import yaml

from tests.support.compose import ComposeCluster
from tests.support.repository import REPOSITORY

pytestmark = [pytest.mark.faults("cluster"), pytest.mark.timeout(3600)]

_VARIANTS = re.compile(r"^### Variants\n(.*?)^Later commands", re.M | re.S)


def variants() -> list[str]:
    """The options of `docker compose` before `up`."""
    (table,) = _VARIANTS.findall((REPOSITORY / "deploy/README.md").read_text(encoding="utf-8"))
    found = re.findall(r"`docker compose (.*)up --build --detach`", table)
    assert len(found) == 3
    return found


@pytest.mark.parametrize("profile", ["", "observability"])
@pytest.mark.parametrize("options", variants())
def test_compose_reads_a_variant_and_has_its_services(
    cluster: ComposeCluster, options: str, profile: str
) -> None:
    words = [*options.split(), *(["--profile", profile] if profile else [])]
    done = subprocess.run(
        [*cluster.compose, *words, "config", "--services"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = [each for each in words if each.endswith(".yml")] or ["docker-compose.yml"]
    services = {
        name
        for file in files
        for name, each in yaml.safe_load((REPOSITORY / file).read_text("utf-8"))["services"].items()
        if each.get("profiles", [""])[0] in ("", profile)
    }
    assert services <= set(done.stdout.split())
