"""How often an idle source is polled."""

import pytest

from drover_worker.engine.core.idle_pauses import IdlePauses


@pytest.mark.parametrize("every_s", [1, 5, 20, 3_600])
def test_what_comes_regularly_waits_a_tenth_of_its_interval_or_the_least_pause(
    every_s: int,
) -> None:
    pauses = IdlePauses(0.2, 1.0)
    for data_s in range(0, 10 * every_s, every_s):
        pauses.reset(data_s)
        now_s = float(data_s)
        while now_s < data_s + every_s:
            now_s += pauses.next_pause_s(now_s)
        assert now_s - (data_s + every_s) <= min(max(0.2, every_s / 10), 1.0)


def test_the_longer_nothing_comes_the_longer_is_the_pause_up_to_the_longest() -> None:
    pauses = IdlePauses(0.2, 1.0)
    found = [pauses.next_pause_s(now_s) for now_s in (0.0, 1.0, 3.0, 8.0, 10.0, 86_400.0)]
    assert found == pytest.approx([0.2, 0.2, 0.3, 0.8, 1.0, 1.0])
    pauses.reset(86_400.0)
    assert pauses.next_pause_s(86_400.0) == 0.2


def test_an_interval_above_the_longest_pause_counts() -> None:
    assert IdlePauses(5.0, 5.0).next_pause_s(0.0) == 5.0
