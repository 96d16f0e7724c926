"""The input of the config form as text."""

import json
from dataclasses import replace

from drover_gateway.console.config_draft import TEXT, Draft, read_draft
from drover_gateway.console.config_text import Notation
from drover_gateway.console.http import Form


def draft_of(config: str) -> Draft:
    text = f'{{"name":"n","config":{{{config}}}}}'
    return read_draft(Form((("notation", "json"), (TEXT, text))), {}, is_new=True)


def test_a_text_without_secrets_stays_as_the_user_typed_it() -> None:
    draft = draft_of('"topic":  "t"')
    assert draft.as_text(Notation.JSON) == draft.text


class SearchedText(str):
    """A text that counts how often it is searched."""

    searches = 0

    def __contains__(self, part: object) -> bool:
        self.searches += 1
        return isinstance(part, str) and super().__contains__(part)


def test_a_text_with_thousands_of_escaped_secrets_is_not_searched_for_each_of_them() -> None:
    """Such a search took minutes, in which no other request was served."""
    draft = draft_of(",".join(f'"password{at}":"\\u0061{at}"' for at in range(2_000)))
    assert len(draft.typed_secrets) == 2_000
    text = SearchedText(draft.text)
    shown = replace(draft, text=text).as_text(Notation.JSON)
    assert text.searches <= 200
    assert set(json.loads(shown)["config"].values()) == {"********"}
