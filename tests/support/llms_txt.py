"""llms.txt: the list of the documentation's pages for language models (llmstxt.org).

``make docs`` writes it, a test compares it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import REPOSITORY

LLMS_TXT = REPOSITORY / "llms.txt"

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END_OF_SENTENCE = re.compile(r"(?<=\.)\s")
_HEADING = re.compile(r"^## (.+)$", re.M)


def llms_text() -> str:
    """The content of the file: the first paragraph of the README, and each page with its first
    sentence, or with its headings if it starts with one.
    """
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    title, summary = _parts(readme)
    lines = [f"# {title}", "", f"> {_plain(summary)}", "", "## Documentation", ""]
    return "\n".join([*lines, *_entries(), ""])


def _entries() -> Iterator[str]:
    for page in (Path("README.md"), Path("ARCHITECTURE.md"), *_pages()):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        title, first = _parts(text)
        if not first or first.startswith(("#", "|", "<", "```")):
            about = "; ".join(_HEADING.findall(text))
        else:
            about = _END_OF_SENTENCE.split(_plain(first), maxsplit=1)[0].rstrip(".:")
        yield f"- [{title}]({page})" + (f": {about}" if about else "")


def _pages() -> list[Path]:
    return sorted(each.relative_to(REPOSITORY) for each in (REPOSITORY / "docs").glob("*.md"))


def _parts(text: str) -> tuple[str, str]:
    """The title and the paragraph below it."""
    title, _, rest = text.partition("\n\n")
    return title.removeprefix("# ").strip(), rest.partition("\n\n")[0]


def _plain(text: str) -> str:
    return " ".join(_LINK.sub(r"\1", text).replace("**", "").split())
