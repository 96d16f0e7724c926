"""A service's log events about broker outages."""

import re


def assert_told_in_turn(log: str, away: str, back: str, *, times: int = 1) -> None:
    """Each outage logs ``away`` once and ``back`` once, and the last event is ``back``.

    At least ``times`` outages are logged: slow brokers may cause more.
    """
    told = re.findall(f"{re.escape(away)}|{re.escape(back)}", log)
    assert told == [away, back] * (len(told) // 2), (told, log)
    assert len(told) >= 2 * times, log
