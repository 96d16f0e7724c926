"""Many small cases in one test, which tells every case that failed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import pytest

CaseT = TypeVar("CaseT")


def check_each(
    cases: Iterable[CaseT], check: Callable[[CaseT], None], name: Callable[[CaseT], str]
) -> None:
    """Call ``check`` with each case.

    Raises:
        BaseExceptionGroup: What failed, each with the case's ``name`` as a note.
    """
    failures: list[BaseException] = []
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below
            error.add_note(f"the case is {name(case)}")
            failures.append(error)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} cases failed", failures)


def by(cases: Iterable[CaseT], key: Callable[[CaseT], str]) -> Mapping[str, list[CaseT]]:
    """The cases with each key, for a test of each."""
    found: defaultdict[str, list[CaseT]] = defaultdict(list)
    for case in cases:
        found[key(case)].append(case)
    return found
