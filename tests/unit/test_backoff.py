from drover.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [backoff.next_pause_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert backoff.pauses == 5


def test_a_success_begins_with_the_first_pause_again() -> None:
    backoff = Backoff(0.1, 0.5)
    backoff.next_pause_s()
    backoff.next_pause_s()
    backoff.reset()
    assert backoff.pauses == 0
    assert backoff.next_pause_s() == 0.1


def test_pauses_grow_by_another_factor() -> None:
    backoff = Backoff(1, 4, growth=1.5)
    assert [backoff.next_pause_s() for _ in range(5)] == [1, 1.5, 2.25, 3.375, 4]


def test_no_pause_stays_none() -> None:
    backoff = Backoff(0, 1)
    assert [backoff.next_pause_s() for _ in range(3)] == [0, 0, 0]


def test_a_pause_with_jitter_is_between_half_and_whole() -> None:
    first = [Backoff(0.1, 1, jitter=True).next_pause_s() for _ in range(200)]
    assert 0.05 <= min(first) < max(first) <= 0.1
    backoff = Backoff(0.1, 1, jitter=True)
    late = [backoff.next_pause_s() for _ in range(1000)][4:]
    assert 0.5 <= min(late) < max(late) <= 1
