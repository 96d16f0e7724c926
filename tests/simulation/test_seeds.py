"""A seed of an earlier version of the simulation is refused in one line."""

import pytest

from simulation.__main__ import main
from simulation.seeds import parse_seed, seed_text


def test_a_seed_is_read_as_it_is_shown() -> None:
    assert parse_seed(seed_text(17)) == 17


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("17", "seed 17 is of the first version of the simulation"),
        ("1-17", "seed 1-17 is of version 1 of the simulation"),
        ("2-17", "seed 2-17 is of version 2 of the simulation"),
        ("9-17", "seed 9-17 is of version 9 of the simulation"),
        ("x", "'x' is not a seed, such as 3-17"),
        ("3-", "'3-' is not a seed"),
        ("-3", "seed -3 is of the first version"),
        ("a-3", "'a-3' is not a seed"),
    ],
)
def test_another_seed_is_refused_in_one_line(
    text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--seed={text}"]) == 2
    shown = capsys.readouterr().err
    assert why in shown
    assert len(shown.splitlines()) == 1
