"""Generated tables in docs/*.md equal the code and are complete."""

from pathlib import Path

import pytest

from tests.support.docs_tables import (
    PLUGIN_EXAMPLES,
    connectors,
    groups_of,
    java_names,
    marks,
    pages,
    plugin_examples,
    shown_groups,
    written,
)
from tests.support.llms_txt import LLMS_TXT, llms_text
from tests.support.repository import REPOSITORY
from tests.support.terminal_texts import situations


def text_of(page: Path) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages(), ids=str)
def test_a_pages_tables_are_as_the_code_is(page: Path) -> None:
    text = text_of(page)
    assert written(text) == text, "make docs"


def test_the_list_for_language_models_has_every_page() -> None:
    text = LLMS_TXT.read_text(encoding="utf-8")
    assert text == llms_text(), "make docs"
    assert not [each for each in pages() if len(each.parts) == 2 and f"]({each})" not in text]


def test_describe_shows_the_documented_definitions() -> None:
    assert PLUGIN_EXAMPLES.read_text(encoding="utf-8") == plugin_examples(), "make docs"


def test_every_setting_of_every_connector_is_in_a_table() -> None:
    shown = {
        pair for page in pages() for mark in marks(text_of(page)) for pair in shown_groups(mark)
    }
    missing = {
        (name, group) for name, kind in connectors().items() for group in groups_of(kind)
    } - shown
    assert missing == set()


def test_what_all_connectors_have_and_what_they_lack_is_in_a_table() -> None:
    shown = {mark for page in pages() for mark in marks(text_of(page))}
    wanted = {f"settings of every {each}" for each in ("connector", "source", "sink")}
    wanted |= {"classes of Kafka Connect", "systems of other connectors"}
    wanted |= {"predictions of examples"} | {
        f"settings of Kafka Connect's that {name} lacks"
        for name, kind in connectors().items()
        if any("FileStream" not in java for java in java_names(kind))
    }
    assert wanted <= shown


def test_every_bad_situation_is_shown_once() -> None:
    shown = [
        mark.removeprefix("terminal when ")
        for page in pages()
        for mark in marks(text_of(page))
        if mark.startswith("terminal when ")
    ]
    assert sorted(shown) == sorted(situations())


def test_a_mark_that_is_not_understood_is_told() -> None:
    with pytest.raises(ValueError, match="no table"):
        written("<!-- table of nothing -->\n<!-- end -->")
    with pytest.raises(ValueError, match="not the same"):
        written("<!-- settings of HttpSource and HttpSink: Requests -->\n<!-- end -->")
