"""Regular expressions match and replace like Java's; tests/golden has the JVM's results."""

import pytest

from drover.transform.java_regex import JavaRegex
from tests.support.each import check_each
from tests.support.transform_corpus.harness import JavaAnswer, java_answers

_ANSWERS = [each for each in java_answers() if each.function == "String.replaceFirst"]
#: Java patterns that Python's re does not support.
_REFUSED = {r"\p{IsLatin}+", r"\p{InGreek}+", r"(?U)\w+", "(?iu)É", r"\X", r"\G.", "(?d)."}


def test_the_jvm_says_the_same() -> None:
    assert _ANSWERS
    check_each(_ANSWERS, _check, lambda each: each.id)


def _check(asked: JavaAnswer) -> None:
    pattern, replacement, text = asked.arguments
    if asked.fails or pattern in _REFUSED:
        with pytest.raises(ValueError):
            JavaRegex(pattern).replacement(replacement)
        return
    regex = JavaRegex(pattern)
    found = regex.replacement(replacement)
    assert (regex.replace_first(found, text) if regex.matches(text) else None) == asked.answer


def test_what_cannot_be_used_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"not support the property 'IsLatin' \(character 12\)"):
        JavaRegex(r"\p{IsLatin}+")
