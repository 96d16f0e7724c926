"""Verdicts about histories: the text for each broken guarantee and for invalid files."""

from pathlib import Path

import pytest

from simulation.events import Event, Span, What, position, write_history
from simulation.history import Rule, check, main

OLD, NEW = (3, 1), (4, 2)


def one(history: list[Event]) -> tuple[Rule, str]:
    found = check(history)
    assert len(found) == 1, found
    return found[0].rule, found[0].text


def published(start: int, end: int, claim: tuple[int, int] = OLD, at_ms: int = 0) -> Event:
    return Event(What.PUBLISHED, "c", (Span("p", start, end),), 0, claim, at_ms)


def committed(at: int, claim: tuple[int, int] = OLD) -> Event:
    return Event(What.COMMITTED, "c", (position("p", at),), 0, claim)


def claimed(claim: tuple[int, int]) -> Event:
    return Event(What.CLAIMED, "c", (), 0, claim)


def test_offsets_before_their_records_lose_records() -> None:
    assert one([published(0, 5), committed(9)]) == (
        Rule.LOST,
        "c-0 under claim 3.1 commits 9 of partition p of c, and record 5 had no effect",
    )


def test_a_record_published_twice_names_both_publications() -> None:
    history = [claimed(OLD), published(0, 5, at_ms=7), claimed(NEW), published(3, 8, NEW, 9)]
    assert one(history) == (
        Rule.DUPLICATED,
        "record 3 of partition p of c is published again by c-0 under claim 4.2;"
        " first published by c-0 under claim 3.1 at 7 ms",
    )


def test_an_effect_of_a_fenced_task_names_both_claims() -> None:
    assert one([claimed(OLD), claimed(NEW), published(0, 2)]) == (
        Rule.FENCED,
        "c-0 published p records 0 to 1 under claim 3.1 after claim 4.2 had started",
    )


def test_revoked_claims_have_no_effect() -> None:
    rule, _ = one([claimed(OLD), Event(What.REVOKED, "c"), published(0, 2)])
    assert rule is Rule.FENCED


def test_an_older_claim_that_begins_late_has_no_effect() -> None:
    history = [claimed(NEW), claimed(OLD), published(0, 2, NEW)]
    assert not check(history)
    assert one([*history, published(2, 3)])[0] is Rule.FENCED


def test_write_ahead_that_is_committed_out_of_order_goes_back() -> None:
    history = [
        Event(What.DELIVERED, "c", (Span("p", 0, 5),), 0, OLD),
        Event(What.DELIVERED, "c", (Span("p", 5, 9),), 0, OLD),
        committed(9),
        committed(5),
    ]
    assert one(history) == (
        Rule.BACKWARDS,
        "c-0 under claim 3.1 commits 5 of partition p of c, which was at 9",
    )


def test_a_dead_letter_that_is_committed_twice_is_a_duplicate() -> None:
    letter = Event(What.DEAD_LETTERED, "c", (Span("p", 0, 1),), 0, OLD)
    assert one([letter, letter])[0] is Rule.DUPLICATED


def test_a_batch_that_is_retried_after_a_rewind_skips_records() -> None:
    history = [
        Event(What.DELIVERED, "c", (Span("p", 0, 5),), 0, OLD),
        Event(What.REWOUND, "c", (position("p", 3),), 0, OLD),
        Event(What.DELIVERED, "c", (Span("p", 5, 9),), 0, OLD),
    ]
    assert one(history) == (
        Rule.ORDER,
        "record 5 of partition p of c is delivered by c-0 under claim 3.1 before record 3",
    )


def test_a_rewind_of_a_fenced_task_concerns_only_that_task() -> None:
    history = [
        claimed(OLD),
        claimed(NEW),
        Event(What.DELIVERED, "c", (Span("p", 0, 5),), 0, NEW),
        Event(What.REWOUND, "c", (position("p", 3),), 0, OLD),
        committed(5, NEW),
    ]
    assert not check(history)


def test_a_sink_may_deliver_again_before_its_commit_only() -> None:
    delivered = Event(What.DELIVERED, "c", (Span("p", 0, 5),), 0, OLD)
    assert not check([delivered, delivered, committed(5)])
    assert one([delivered, committed(5), delivered])[0] is Rule.DUPLICATED


def test_an_acknowledged_commit_that_is_gone_is_lost() -> None:
    history = [
        published(0, 5),
        committed(5),
        Event(What.ACKNOWLEDGED, "c", (position("p", 5),), 0, OLD),
        Event(What.FETCHED, "c", (position("p", 2),)),
    ]
    assert one(history) == (Rule.BACKWARDS, "2 of partition p of c is committed, after 5")


@pytest.mark.parametrize(
    ("read", "rule"),
    [
        ([(0, 10)], None),
        ([(0, 4), (4, 10)], None),
        ([(0, 4), (5, 10)], Rule.LOST),
        ([(0, 9)], Rule.LOST),
        ([(0, 6), (4, 10)], Rule.DUPLICATED),
        ([(0, 4), (6, 10), (4, 6)], Rule.ORDER),
        ([(0, 11)], Rule.UNKNOWN),
    ],
)
def test_a_reader_finds_each_record_of_the_input_once_in_order(
    read: list[tuple[int, int]], rule: Rule | None
) -> None:
    spans = tuple(Span("p", *each) for each in read)
    history = [Event(What.INPUT, "c", (Span("p", 0, 10),)), Event(What.READ_BACK, "c", spans)]
    assert [each.rule for each in check(history)] == ([] if rule is None else [rule])


def test_an_output_of_at_least_once_may_hold_a_record_twice() -> None:
    read = (Span("p", 0, 6), Span("p", 4, 10))
    history = [Event(What.INPUT, "c", (Span("p", 0, 10),)), Event(What.READ_BACK, "c", read)]
    assert check(history)
    assert not check(history, at_least_once=["c"])


def test_records_of_the_input_that_never_arrive_are_lost() -> None:
    rule, text = one([Event(What.INPUT, "c", (Span("p", 0, 10),)), published(0, 7)])
    assert (rule, text) == (Rule.LOST, "record 7 of partition p of c never arrived")


def test_an_operator_may_reset_offsets() -> None:
    reset = Event(What.RESET, "c", (position("p", 2),))
    again = Event(What.READ_BACK, "c", (Span("p", 0, 5), Span("p", 2, 7)))
    assert not check([published(0, 5), committed(5), reset, published(2, 7), committed(7), again])
    skipped = Event(What.RESET, "c", (position("p", 9),))
    found = Event(What.READ_BACK, "c", (Span("p", 0, 5), Span("p", 9, 12)))
    assert not check([published(0, 5), committed(5), skipped, published(9, 12), found])


def test_the_command_shows_the_violation_among_its_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.jsonl"
    write_history(file, [claimed(OLD), published(0, 5), published(4, 6)])
    assert main([str(file)]) == 1
    shown = capsys.readouterr().out
    assert "record 4 of partition p of c is published again" in shown
    assert "> event     2 " in shown
    assert "3 events: 1 violations" in shown
    write_history(file, [claimed(OLD), published(0, 5)])
    assert main([str(file)]) == 0
    assert "the guarantees hold" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "this is not JSON"),
        ("[]", "an event is a JSON object"),
        ('{"event": "lost", "connector": "c", "time_ms": 1}', "event is 'lost'"),
        ('{"event": "polled", "time_ms": 1}', "connector must be a name"),
        ('{"event": "polled", "connector": "c"}', "time_ms must be"),
        ('{"event": "polled", "connector": "c", "time_ms": 1, "x": 1}', "unknown fields: x"),
        ('{"event": "polled", "connector": "c", "time_ms": 1, "task": "0"}', "task must be"),
        ('{"event": "polled", "connector": "c", "time_ms": 1, "claim": [1]}', "claim must be"),
        (
            '{"event": "polled", "connector": "c", "time_ms": 1, "spans": [["p", 5, 3]]}',
            "starts after its end",
        ),
        (
            '{"event": "committed", "connector": "c", "time_ms": 1, "spans": [["p", 3, 5]]}',
            "is not a position",
        ),
        (
            '{"event": "polled", "connector": "c", "time_ms": 1, "spans": [[1]]}',
            "is not [partition",
        ),
        ('{"event": "input", "connector": "c", "time_ms": 0}', "earlier than 1 of the event"),
    ],
)
def test_an_invalid_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(f'{{"event": "input", "connector": "c", "time_ms": 1}}\n{line}\n')
    assert main([str(file)]) == 2
    shown = capsys.readouterr().err
    assert f"line 2 of {file}" in shown
    assert why in shown


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
