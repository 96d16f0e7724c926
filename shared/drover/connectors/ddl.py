"""Column types as text, in Spark's DDL: ``id bigint, name string, price decimal(10,2)``.

Parsed without Spark, into the Arrow types of records (``drover.record``).
"""

import re
from collections.abc import Callable

import pyarrow as pa

from drover.connector.records import is_list

TIMESTAMP = pa.timestamp("ms", tz="UTC")

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
}
_WRITTEN = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "bigint",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
}
_DECIMAL_DIGITS_MAX = 38
_DEPTH_MAX = 32
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*')|([\w.\-$]+)|([<>(),:]))")


def parse_ddl(text: str) -> pa.Schema:
    """The columns in ``text``.

    Raises:
        ValueError: Syntax error or duplicate column; the message has the position.
    """
    parser = _Parser(text)
    fields = parser.list_of(parser.column, end=None)
    return pa.schema(_distinct(fields))


def ddl_fault(text: str) -> str | None:
    """The error in a DDL text, or None."""
    try:
        parse_ddl(text)
    except ValueError as error:
        return str(error)
    return None


def to_ddl(schema: pa.Schema) -> str:
    """The DDL text of these columns; types without a DDL name become string."""
    return ", ".join(f"{_quoted(each.name)} {_written(each.type)}" for each in schema)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int]] = []
        position = 0
        end = len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"has {text[position:].lstrip()[:20]!r} where a column should be")
            self._tokens.append((match.group().strip(), match.start()))
            position = match.end()
        self._next = 0
        self._depth = 0

    def list_of(self, item: Callable[[], pa.Field], end: str | None) -> list[pa.Field]:
        items = [item()]
        while self._accept(","):
            items.append(item())
        if end is not None:
            self._expect(end)
        elif self._peek() is not None:
            raise self._fault("a comma")
        return items

    def column(self) -> pa.Field:
        name = self._name()
        self._accept(":")
        kind = self._type()
        nullable = True
        if self._accept_word("not"):
            if not self._accept_word("null"):
                raise self._fault("NULL")
            nullable = False
        if self._accept_word("comment"):
            self._take("a comment in single quotes")
        return pa.field(name, kind, nullable=nullable)

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ValueError(f"nests types more than {_DEPTH_MAX} deep")
        try:
            return self._type_named(self._take("a type").lower())
        finally:
            self._depth -= 1

    def _type_named(self, word: str) -> pa.DataType:
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(element)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return pa.struct(_distinct(self.list_of(self.column, end=">")))
        kind = _TYPES.get(word)
        if kind is None:
            known = ", ".join([*_TYPES, "decimal(p,s), array<…>, map<…,…>, struct<…>"])
            raise ValueError(f"has the type {word!r}: must be one of {known}")
        if word in ("varchar", "char") and self._accept("("):
            self._number()
            self._expect(")")
        return kind

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise ValueError(
                f"has decimal({precision},{scale}): 1 to {_DECIMAL_DIGITS_MAX} digits, and a scale "
                "no larger than the precision"
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self._take("a number")
        if not token.isdecimal():
            raise ValueError(f"has {token!r} where a number should be")
        return int(token)

    def _name(self) -> str:
        token = self._take("a column's name")
        if token in "<>(),:" or token.startswith("'"):
            raise ValueError(f"has {token!r} where a column's name should be")
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _peek(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _take(self, wanted: str) -> str:
        token = self._peek()
        if token is None:
            raise ValueError(f"ends where {wanted} should be")
        self._next += 1
        return token

    def _accept(self, token: str) -> bool:
        found = self._peek() == token
        self._next += found
        return found

    def _accept_word(self, word: str) -> bool:
        token = self._peek()
        found = token is not None and token.lower() == word
        self._next += found
        return found

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._fault(repr(token))

    def _fault(self, wanted: str) -> ValueError:
        token = self._peek()
        if token is None:
            return ValueError(f"ends where {wanted} should be")
        position = self._tokens[self._next][1]
        return ValueError(
            f"has {token!r} where {wanted} should be, after {self._text[:position][-30:]!r}"
        )


def _distinct(fields: list[pa.Field]) -> list[pa.Field]:
    names = [each.name for each in fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"names {', '.join(doubled)} more than once")
    return fields


def _quoted(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        return name
    return f"`{name.replace('`', '``')}`"


def _written(kind: pa.DataType) -> str:
    known = _WRITTEN.get(kind)
    if known is not None:
        return known
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = ", ".join(f"{_quoted(each.name)}: {_written(each.type)}" for each in fields)
        return f"struct<{inner}>" if fields else "string"
    if pa.types.is_map(kind):
        return f"map<{_written(kind.key_type)}, {_written(kind.item_type)}>"
    if is_list(kind):
        return f"array<{_written(kind.value_type)}>"
    return "string"
