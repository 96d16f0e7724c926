"""Transforms match Kafka Connect's: a golden corpus holds the results of its classes.

tests/support/transform_corpus describes how it is made, and the form of a case.
"""

import pytest

from tests.support.each import by, check_each
from tests.support.transform_corpus.harness import (
    assert_alone,
    assert_together,
    grouped,
    load_cases,
)

CASES = load_cases()
CASES_BY_CLASS = by(CASES, lambda case: case.class_name)
GROUPS_BY_CLASS = by(grouped(CASES), lambda cases: cases[0].class_name)


def test_the_corpus_is_there() -> None:
    assert len(CASES) >= 400
    assert len({each.id for each in CASES}) == len(CASES)
    assert len({each.class_name.partition("$")[0] for each in CASES}) == 19


@pytest.mark.parametrize("name", sorted(CASES_BY_CLASS))
def test_a_record_alone(name: str) -> None:
    check_each(CASES_BY_CLASS[name], assert_alone, lambda case: case.id)


@pytest.mark.parametrize("name", sorted(GROUPS_BY_CLASS))
def test_records_in_one_batch(name: str) -> None:
    check_each(GROUPS_BY_CLASS[name], assert_together, lambda cases: cases[0].id)
