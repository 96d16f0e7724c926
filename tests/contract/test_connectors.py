"""Requirements for every built-in connector."""

import re

import pytest

from drover.connector import ConfigType, Connector, Importance, SourceConnector
from drover.connector.settings import OF_ALL_CONNECTORS
from tests.support.docs_tables import connectors, marks, pages, shown_groups
from tests.support.repository import REPOSITORY

_SECRET = re.compile(
    r"(password|secret|secret-access-key|token|credential|credentials\.json|authorization"
    r"|jaas\.config|oauthbearer\.config|headers\.additional|\.pem|\.key|account-key|connection-string)$"
)
#: Words in names of settings that decide which data is read, or what is written.
_DECIDES_DATA = re.compile(
    r"include|exclude|filter|serializer|isolation|servers|reset|format|charset|encoding|time.?zone"
    r"|precision|case|mask|truncate|regex|mapping|policy|statement"
)
#: Settings with such words that decide no data, as their reasons explain.
REVIEWED = frozenset(
    ("include.schema.changes", "message.prefix.exclude.list", "snapshot.isolation.mode")
)
_ROW = re.compile(
    r"^\| (?P<names>\[`.*?) \| .* \| (?P<embedded>[^|]*) \| (?P<kafka>[^|]*) \|$", re.M
)

KINDS = list(connectors().values())


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_it_is_and_what_it_guarantees(kind: type[Connector]) -> None:
    assert kind.__doc__
    assert re.fullmatch(r"\d+\.\d+\.\d+", kind.version)
    assert kind.guarantees is not None
    if issubclass(kind, SourceConnector):
        assert kind.offset_forms, "which offsets it reads"
        assert "alter_offsets" in vars(kind), "which offsets an operator may write"


@pytest.mark.parametrize("kind", KINDS)
def test_its_settings_are_told_and_its_secrets_are_not(kind: type[Connector]) -> None:
    for key in kind.config_def():
        assert key.documentation.endswith("."), key.name
        sounds = _SECRET.search(key.name) is not None
        assert (key.type is ConfigType.PASSWORD) == sounds, key.name


@pytest.mark.parametrize("kind", KINDS)
def test_its_important_settings_come_first(kind: type[Connector]) -> None:
    important = [key.importance is Importance.HIGH for key in kind.config_def()]
    assert any(important[:2]) or not any(important)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_each_setting_without_effect_has_the_reason_why_no_data_depends_on_it(
    kind: type[Connector] | None,
) -> None:
    table = OF_ALL_CONNECTORS if kind is None else kind.other_settings
    for name, reason in table.without_effect.items():
        assert len(reason) > 10, f"{name}: why does the data not depend on it?"
        assert name not in table.refused, name
        if _DECIDES_DATA.search(name):
            assert name in REVIEWED, f"{name} sounds like a setting that decides the data"


@pytest.mark.parametrize("kind", KINDS)
def test_its_page_says_what_it_guarantees(kind: type[Connector]) -> None:
    texts = {page: (REPOSITORY / page).read_text(encoding="utf-8") for page in pages()}
    own = {
        page: text
        for page, text in texts.items()
        if kind.__name__ in {name for name, _ in _shown(text)}
    }
    assert own or not list(kind.config_def()), "no page shows its settings"
    for page, text in own.items():
        assert re.search(r"\*\*[^*]*\bonce\b[^*]*\*\*", text), page


def _shown(text: str) -> set[tuple[str, str]]:
    return {pair for mark in marks(text) for pair in shown_groups(mark)}


def test_the_readme_has_each_with_its_guarantees() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    told: dict[str, tuple[str, str]] = {}
    for row in _ROW.finditer(text):
        names = re.findall(r"`(\w+)`", row["names"])
        shares = [row[each].split(", ") for each in ("embedded", "kafka")]
        for index, name in enumerate(names):
            embedded, kafka = (each[min(index, len(each) - 1)] for each in shares)
            told[name] = (embedded, kafka)
    assert told == {
        name: (str(kind.guarantees.embedded), str(kind.guarantees.kafka))
        for name, kind in connectors().items()
        if kind.guarantees is not None
    }
