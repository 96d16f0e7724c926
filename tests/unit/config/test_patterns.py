"""Regular expressions match and replace like Java's; tests/golden has the JVM's results."""

import pickle
import threading

import pytest

from drover.config import patterns
from drover.config.java_syntax import PATTERN_MAX_CHARS, translated
from drover.config.patterns import (
    Pattern,
    PatternTimeoutError,
    any_matches,
    patterns_fault,
    whole_matcher,
)
from tests.support.each import check_each
from tests.support.transform_corpus.harness import JavaAnswer, java_answers

_ANSWERS = [each for each in java_answers() if each.function == "String.replaceFirst"]
#: Java patterns that Drover does not support.
_REFUSED = {r"(?U)\w+", "(?iu)É", "(?d)."}
#: RE2 has no syntax for the look-ahead, and every way to divide the text is tried.
_HOSTILE = "(a|aa)+(?=x|y)"
_TEXT = "a" * 45


def test_the_jvm_says_the_same() -> None:
    assert _ANSWERS
    check_each(_ANSWERS, _check, lambda each: each.id)


def _check(asked: JavaAnswer) -> None:
    pattern, replacement, text = asked.arguments
    if asked.fails or pattern in _REFUSED:
        with pytest.raises(ValueError):
            Pattern(pattern).replacement(replacement)
        return
    found = Pattern(pattern)
    replaced = found.replace_first(found.replacement(replacement), text)
    assert (replaced if found.matches(text) else None) == asked.answer


def test_re2_and_regex_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        (Pattern(pattern), text)
        for pattern, _, text in (each.arguments for each in _ANSWERS if not each.fails)
        if pattern not in _REFUSED and translated(pattern).linear is not None
    ]
    assert len(asked) > 30
    by_re2 = [pattern.matches(text) for pattern, text in asked]
    monkeypatch.setattr(patterns, "_matched_by_re2", lambda _pattern, _text: None)
    assert [pattern.matches(text) for pattern, text in asked] == by_re2


def test_what_cannot_be_used_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"not support the property 'IsNothing' \(character 14\)"):
        Pattern(r"\p{IsNothing}+")


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("a" * (PATTERN_MAX_CHARS + 1), "more than 4096 characters"),
        ("((a{1000}){1000}){1000}", "more than 5000 parts"),
        ("(?:[ab]?c|d){1000}" * 20, "more than 5000 parts"),
        ("(" * 1_000 + ")" * 1_000, "nested too deeply"),
        ("[" * 1_000 + "a" + "]" * 1_000, "nested too deeply"),
        ("(?<=(a))b", "in a look-behind, a group that captures"),
        ("(?<=a++)b", "possessive repetition in a look-behind"),
        ("(?<=a*)b", "a look-behind has no greatest length"),
        (r"(?i)(a)\1", "a back reference without case"),
        ("*a", "nothing to repeat"),
        ("a|+", "nothing to repeat"),
        ("(a", "a group is not closed"),
    ],
)
def test_a_pattern_that_could_end_the_process_or_has_another_meaning_is_refused(
    pattern: str, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        Pattern(pattern)


def test_re2_matches_where_its_syntax_suffices() -> None:
    assert not Pattern("(a+)+x").matches(_TEXT)
    assert not Pattern("(a|aa)+[xy]").matches(_TEXT)
    assert Pattern("(a|aa)+[xy]").matches(_TEXT + "y")


def test_a_call_ends_at_its_limit_and_names_the_pattern() -> None:
    pattern = Pattern(_HOSTILE)
    with pytest.raises(PatternTimeoutError, match=r"the pattern '\(a\|aa\)\+") as raised:
        pattern.matches(_TEXT)
    assert raised.value.pattern == _HOSTILE
    with pytest.raises(PatternTimeoutError):
        pattern.replace_first(pattern.replacement("b"), _TEXT)


def test_other_threads_run_during_a_call() -> None:
    pattern, errors = Pattern(_HOSTILE), []

    def match() -> None:
        try:
            pattern.matches(_TEXT)
        except PatternTimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=match, daemon=True)
    thread.start()
    turns = 0
    while thread.is_alive():  # a call that held the interpreter's lock would leave a few turns
        thread.join(0.001)
        turns += 1
    assert errors
    assert turns > 20


def test_a_pattern_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(Pattern(r"(\w+)-(?<n>\d+)")))
    assert found.replace_first(found.replacement("${n}"), "a-12") == "12"


def test_lists_of_patterns() -> None:
    assert any_matches(["a.*", "b"], "abc")
    assert not any_matches(["a.*", "b"], "bc")
    assert not any_matches([], "")
    assert patterns_fault(["a", "b"]) is None
    assert str(patterns_fault(["a", "("])).startswith(
        "must be a regular expression (Java syntax): '('"
    )


def test_other_patterns_have_the_limit_under_the_name_that_users_know() -> None:
    assert whole_matcher("(?:[^/]+/)*x", "s3://b/**/x")("a/b/x")
    assert not whole_matcher("(?:[^/]+/)*x", "s3://b/**/x")("a/b/y")
    with pytest.raises(PatternTimeoutError, match=r"'s3://b/\*'"):
        whole_matcher(_HOSTILE, "s3://b/*")(_TEXT)
