"""Paths to code in docs pages exist."""

import re
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY, text_of

PAGES = ("docs/to-change.md", "docs/how-to.md")
#: Folders that a page may omit at the start of a path.
ROOTS = (
    *("", "docs", "shared", "shared/drover"),
    *("services/worker", "services/worker/drover_worker"),
    *("services/coordinator", "services/config-store", "services/status-store"),
    "services/gateway",
)
DOTTED = re.compile(r"drover(_\w+)?(\.\w+)+")
PATH = re.compile(r"[\w.-]+/[\w./-]*|[\w-]+\.(py|md|proto|toml)")


def missing(text: str) -> list[str]:
    """The paths and module names in a page's code spans that do not exist."""
    named = re.findall(r"`([^`\n]+)`", text)
    paths = [each for each in named if PATH.fullmatch(each)]
    modules = [each.replace(".", "/") for each in named if DOTTED.fullmatch(each)]
    return [path for path in paths if not _exists(path)] + [
        module.replace("/", ".") for module in modules if not _exists(module, f"{module}.py")
    ]


def _exists(*paths: str) -> bool:
    return any((REPOSITORY / root / path).exists() for root in ROOTS for path in paths)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_page_exists(page: str) -> None:
    text = text_of(Path(page))
    assert text is not None
    assert text.count("`") > 20
    assert missing(text) == [], f"{page} names paths that do not exist"


def test_a_missing_path_and_a_missing_module_are_found() -> None:
    page = "see `docs/no-such-page.md`, `drover.no_such_module`, `drover.errors`, `rpc/roles.py`"
    assert missing(page) == ["docs/no-such-page.md", "drover.no_such_module"]
