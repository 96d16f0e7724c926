"""Transforms do what Kafka Connect's do: a golden corpus that its own classes answered.

See tests/support/transform_corpus: how it is made, and the form of a case.
"""

from collections.abc import Sequence

import pytest

from tests.support.transform_corpus.harness import (
    Case,
    assert_alone,
    assert_together,
    grouped,
    load_cases,
)

CASES = load_cases()
GROUPS = grouped(CASES)


def test_the_corpus_is_there() -> None:
    assert len(CASES) >= 400
    assert len({each.id for each in CASES}) == len(CASES)
    assert len({each.class_name.partition("$")[0] for each in CASES}) == 19


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_record_alone(case: Case) -> None:
    assert_alone(case)


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: cases[0].id)
def test_records_in_one_batch(cases: Sequence[Case]) -> None:
    assert_together(cases)
