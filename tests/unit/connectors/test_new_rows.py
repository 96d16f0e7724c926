"""When the JDBC sink tries a plain INSERT before an upsert."""

from drover.connectors.jdbc.new_rows import NewRows


class Clock:
    """A clock that only the test advances."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_rows_of_a_table_are_tried_until_some_were_there() -> None:
    known = NewRows(Clock())
    assert known.may_be("a")
    assert known.may_be("a")
    known.were_there("a")
    assert not known.may_be("a")
    assert known.may_be("b")


def test_each_attempt_for_nothing_puts_the_next_off_for_longer() -> None:
    clock = Clock()
    known = NewRows(clock)
    waited_s = []
    for _ in range(15):
        known.were_there("a")
        failed_s = clock.now_s
        while not known.may_be("a"):
            clock.now_s += 1
        waited_s.append(clock.now_s - failed_s)
    assert waited_s[:5] == [1, 2, 4, 8, 16]
    assert waited_s[-2:] == [3_600, 3_600]


def test_no_more_than_a_thousand_tables_are_remembered() -> None:
    known = NewRows(Clock())
    for number in range(1_001):
        known.were_there(number)
    assert known.may_be(0)
    assert not known.may_be(1)
