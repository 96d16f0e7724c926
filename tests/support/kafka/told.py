"""What a service says of brokers that go away and come back."""

import re


def assert_told_in_turn(log: str, away: str, back: str, *, times: int = 1) -> None:
    """Each time once that they are away and once that they are back, as they are at the end.

    There were so many times at least: brokers that are slow may have been missed once more.
    """
    told = re.findall(f"{re.escape(away)}|{re.escape(back)}", log)
    assert told == [away, back] * (len(told) // 2), (told, log)
    assert len(told) >= 2 * times, log
