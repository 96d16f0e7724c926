"""Replaces the values of config providers in texts, in every form in which a text may have them."""

import base64
import html
import json
import re
import threading
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

#: Shorter values occur in many texts by chance, and are not replaced.
LENGTH_MIN = 4
#: Parts of words of a value are replaced from this length on.
PART_LENGTH = 10
#: How many values are remembered; the oldest are forgotten.
_VALUES_MAX = 10_000
#: Parts of the encoded forms of longer values are not replaced.
_ENCODED_LENGTH_MAX = 1_000
#: Only the first characters of a value are considered.
_VALUE_LENGTH_MAX = 64 * 1024

_ITEM_ENDS = re.compile(r"[,\r\n]")
#: What separates words; the start of a URL is no secret, but is in many texts.
_WORD_ENDS = re.compile(r"""^\s*(?:[A-Za-z][\w+.-]*:)+//|[\s"'`{}\[\]()<>,;\\]+""")


class SecretTexts:
    """Values of providers with their placeholders; thread-safe.

    Each value is found in upper and lower case, quoted, escaped, URL-encoded, and in base64 and
    hexadecimal digits; so are its items, which lines and commas separate. Parts of at least
    ``PART_LENGTH`` characters of a word, and of an encoded value, are found in upper and lower
    case.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self._clear_index()

    def add(self, values: Mapping[str, str]) -> None:
        """Remember values of providers, with their placeholders."""
        with self._lock:
            added = {each: values[each] for each in values if each not in self._values}
            self._values |= added
            if len(self._values) > _VALUES_MAX:
                self._values = dict([*self._values.items()][-_VALUES_MAX // 2 :])
                self._clear_index()
                added = self._values
            for value, placeholder in added.items():
                self._index(value[:_VALUE_LENGTH_MAX], placeholder)

    def hidden(self, text: str) -> str:
        """The text with placeholders in place of values and of their parts."""
        starts = self._starts
        if not starts:
            return text
        folded = _folded(text)
        shown: list[str] = []
        position = shown_end = 0
        last = len(folded) - LENGTH_MIN
        while position <= last:
            if folded[position : position + LENGTH_MIN] not in starts:
                position += 1
                continue
            end, placeholder = self._match(folded, position)
            if end > position:
                shown += (text[shown_end:position], placeholder)
                position = shown_end = end
            else:
                position += 1
        return "".join((*shown, text[shown_end:])) if shown else text

    def _match(self, folded: str, position: int) -> tuple[int, str]:
        """The end of the longest form or part at a position, and what replaces it."""
        end, placeholder = position, ""
        for form, replacement in self._forms.get(folded[position : position + LENGTH_MIN], ()):
            if position + len(form) > end and folded.startswith(form, position):
                end, placeholder = position + len(form), replacement
        part_end = position + PART_LENGTH
        replacement = self._parts.get(folded[position:part_end], "")
        if replacement:
            while folded[part_end + 1 - PART_LENGTH : part_end + 1] in self._parts:
                part_end += 1
            if part_end > end:
                end, placeholder = part_end, replacement
        return end, placeholder

    def _clear_index(self) -> None:
        #: Whole forms by their first characters, with the placeholders.
        self._forms: dict[str, tuple[tuple[str, str], ...]] = {}
        self._parts: dict[str, str] = {}
        #: The first characters of every form and part.
        self._starts: set[str] = set()

    def _index(self, value: str, placeholder: str) -> None:
        # a placeholder stays as it is, although it may contain what is a value elsewhere
        for form in (*_forms(value), _folded(placeholder)):
            start = form[:LENGTH_MIN]
            self._forms[start] = (*self._forms.get(start, ()), (form, placeholder))
            self._starts.add(start)
        for part in _parts(value):
            self._parts.setdefault(part, placeholder)
            self._starts.add(part[:LENGTH_MIN])


def _folded(text: str) -> str:
    """The text in lower case, with as many characters."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _parts(value: str) -> Iterator[str]:
    texts = [value]
    if len(value) <= _ENCODED_LENGTH_MAX:  # messages are cut within encoded values too
        texts += _encoded(value.encode(errors="replace"))
    for text in texts:
        for word in _WORD_ENDS.split(_folded(text)):
            for start in range(len(word) - PART_LENGTH + 1):
                yield word[start : start + PART_LENGTH]


def _forms(value: str) -> set[str]:
    items = {value, *(each.strip() for each in _ITEM_ENDS.split(value))}
    found = {
        _folded(form)
        for item in items
        if len(item) >= LENGTH_MIN
        for form in (*_quoted(item), *_encoded(item.encode(errors="replace")))
    }
    return {form for form in found if len(form) >= LENGTH_MIN}


def _quoted(text: str) -> Iterator[str]:
    yield from (text, text.strip(), text.upper(), text.casefold())
    escaped = json.dumps(text)[1:-1]
    yield from (escaped, json.dumps(escaped)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    yield from (repr(text)[1:-1], text.replace("'", "''"), text.replace('"', '""'))
    yield from (quote(text), quote(text, safe=""), quote_plus(text))
    yield from (html.escape(text), html.escape(text, quote=False))


def _encoded(raw: bytes) -> Iterator[str]:
    yield raw.hex()
    yield repr(raw)[2:-1]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        # in base64 the characters depend on the number of bytes before the value
        for shift in range(3):
            whole_count = (shift + len(raw)) * 8 // 6
            yield encode(bytes(shift) + raw).decode()[-(-shift * 8 // 6) : whole_count]
