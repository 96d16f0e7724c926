"""The same seed gives the same run, byte for byte, in another process with other hashes."""

import os
import subprocess
import sys

import pytest

from simulation.seeds import seed_text
from tests.support.repository import REPOSITORY

SEEDS = (6, 8)


def told_in_a_process(seed: int, hash_seed: int) -> str:
    command = [sys.executable, "-m", "simulation", "--seed", seed_text(seed), "--story", "all"]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *sys.path])
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_run_in_any_process(seed: int) -> None:
    first, second = (told_in_a_process(seed, hash_seed) for hash_seed in (1, 2))
    assert first == second
    assert len(first.splitlines()) > 100
