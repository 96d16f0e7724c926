"""Parses a SELECT with DuckDB and checks that every part of its syntax tree is allowed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drover.record.batch import KEY, RECORD_COLUMNS, TIMESTAMP, TOPIC, VALUE
from drover.transform.sql.apart import QueryProcessEndedError, QueryProcesses, query_processes
from drover.transform.sql.engine import answer, memory_limit
from drover.transform.sql.functions import ALLOWED, CONSTANT_ARGUMENTS, CONSTANT_MAX_CHARS

#: The relation, and its column with the row number in the batch.
RELATION, ROW = "batch", "drover_row"
_MAX_CHARS = 16 * 1024
_COMPUTED = (VALUE, KEY, TOPIC, TIMESTAMP)
#: Clauses that read several rows: DuckDB's names in the syntax tree, and their keywords.
_OF_SEVERAL_ROWS = {
    "modifiers": "DISTINCT, ORDER BY or LIMIT",
    "group_expressions": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "sample": "SAMPLE",
}
#: Expressions that are allowed if their children are.
_HARMLESS = frozenset(("CASE", "CAST", "CONJUNCTION", "COMPARISON", "BETWEEN", "OPERATOR"))
_HARMLESS_LEAVES = frozenset(("CONSTANT", "TYPE"))
#: Operators that are not allowed.
_OPERATORS_REFUSED = frozenset(("UNNEST", "ARRAY_CONSTRUCTOR_SUBQUERY"))
_NOT_FOUND = 2**63


class StatementError(ValueError):
    """A statement is not allowed; the message has the fault with line and column."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A checked statement.

    Attributes:
        text: The SELECT to run; it returns the columns ``computed`` and ROW. None if the records
            do not change.
        probe: Computes the same for every row, with null for rows that fail.
        computed: Names of the computed columns.
        used: Names of the columns that the statement reads.
    """

    text: str | None
    probe: str
    computed: tuple[str, ...]
    used: tuple[str, ...]


@lru_cache(maxsize=100)
def parse_statement(text: str) -> Statement:
    """Parse and check a statement.

    Raises:
        StatementError: The text does not parse or is not allowed.
    """
    if len(text) > _MAX_CHARS:
        raise StatementError(f"must not be longer than {_MAX_CHARS} characters")
    processes = query_processes()
    return parse_here(text) if processes is None else _parse_apart(processes, text)


def parse_here(text: str) -> Statement:
    """As ``parse_statement``, in this process, with a limit of its memory during the call."""
    import duckdb

    try:
        with memory_limit():
            return _Checker(text).statement()
    except RecursionError:
        raise StatementError("is nested too deeply") from None
    except duckdb.Error as error:
        raise StatementError(f"does not parse: {first_line(error)}") from None
    except MemoryError:
        raise StatementError("needs too much memory to be parsed") from None


def _parse_apart(processes: QueryProcesses, text: str) -> Statement:
    try:
        told, _ = processes.ask({"statement": text}, limit_ms=processes.limit_ms)
    except QueryProcessEndedError:
        raise StatementError("needs too much time or memory to be parsed") from None
    if "error" in told:
        raise StatementError(told["error"])
    found = told["statement"]
    return Statement(found["text"], found["probe"], tuple(found["computed"]), tuple(found["used"]))


def first_line(error: Exception) -> str:
    """The first line of an error of DuckDB; the statement is below it."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class _Checker:
    def __init__(self, text: str) -> None:
        self._text = text
        self._relations = {RELATION}
        self._used: set[str] = set()

    def statement(self) -> Statement:
        tree = self._parsed()
        select = tree["node"]
        self._check_shape(select)
        kept, computed = self._columns(select["select_list"])
        if VALUE not in kept and VALUE not in computed:
            raise StatementError("must return value: SELECT ... AS value FROM batch")
        if select["where_clause"] is not None:
            self._check(select["where_clause"], frozenset())
        elif not computed:
            return Statement(None, "", (), ())
        condition = select["where_clause"]
        select["select_list"] = [*computed.values(), _column(ROW)]
        text = _text_of(tree)
        select["select_list"] = [_tried(each) for each in (*computed.values(), condition) if each]
        select["where_clause"] = None
        used = tuple(name for name in RECORD_COLUMNS if name in self._used)
        return Statement(text, _text_of(tree), tuple(computed), used)

    def _parsed(self) -> Any:
        found = json.loads(answer("SELECT json_serialize_sql(?::VARCHAR)", self._text))
        if found["error"]:
            if found["error_type"] == "out of memory":
                raise StatementError("needs too much memory to be parsed")
            if found["error_type"] != "parser":
                raise StatementError("must be one SELECT")
            message = str(found["error_message"]).splitlines()[0]
            raise self._error(f"does not parse: {message}", int(found.get("position", _NOT_FOUND)))
        if len(found["statements"]) != 1:
            raise StatementError(f"must be one SELECT, not {len(found['statements'])} statements")
        return found["statements"][0]

    def _check_shape(self, select: Mapping[str, Any]) -> None:
        if select["type"] != "SELECT_NODE" or select["cte_map"]["map"]:
            raise StatementError("must be one SELECT, without WITH, UNION and the like")
        for part, called in _OF_SEVERAL_ROWS.items():
            if select[part]:
                raise StatementError(
                    f"must not have {called}: a statement cannot combine records, because batches "
                    "may start and end at any record"
                )
        source = select["from_table"]
        name = str(source.get("table_name", "")).lower()
        further = ("schema_name", "catalog_name", "sample", "column_name_alias", "at_clause")
        plain = source["type"] == "BASE_TABLE" and not any(source.get(each) for each in further)
        if not plain or name != RELATION:
            raise self._error(f"must read FROM {RELATION} and nothing else", _place(source))
        if source["alias"]:
            self._relations = {str(source["alias"]).lower()}

    def _columns(self, selected: list[Any]) -> tuple[set[str], dict[str, Any]]:
        """The unchanged columns, and the computed ones with their expressions."""
        kept: set[str] = set()
        everything = False
        computed: dict[str, Any] = {}
        for each in selected:
            if each["class"] == "STAR":
                self._check_star(each)
                everything = True
                continue
            path = self._path(each) if each["class"] == "COLUMN_REF" else []
            name = (each["alias"] or (path[-1] if path else "")).lower()
            if name not in RECORD_COLUMNS:
                what = f"returns {name!r}, which" if name else "returns a column whose name"
                raise self._error(
                    f"{what} is no column of a record: name it AS {', AS '.join(_COMPUTED)}",
                    _place(each),
                )
            if name in computed or (name in kept and path != [name]):
                raise self._error(f"returns {name} twice", _place(each))
            if path == [name]:
                kept.add(name)
                continue
            if name not in _COMPUTED:
                raise self._error(f"cannot change {name}", _place(each))
            self._check(each, frozenset())
            computed[name] = each | {"alias": name}
        return {*RECORD_COLUMNS} if everything else kept, computed

    def _check_star(self, star: Mapping[str, Any]) -> None:
        more = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "expr")
        if star["columns"] or any(star[each] for each in more):
            raise self._error(
                "must have nothing after *: columns that it does not return stay unchanged",
                _place(star),
            )

    def _check(self, found: Mapping[str, Any], names: frozenset[str]) -> None:
        """Check an expression; ``names`` are the parameters of the enclosing lambdas."""
        match found["class"]:
            case "COLUMN_REF":
                self._use(found, names)
                return
            case "LAMBDA":
                names |= {*_lambda_names(found["lhs"])}
                self._check(found["expr"], names)
                return
            case "FUNCTION":
                self._check_function(found)
            case kind if kind in _HARMLESS_LEAVES:
                return
            case kind if kind not in _HARMLESS or found["type"] in _OPERATORS_REFUSED:
                called = str(found["type"]).lower().replace("_", " ")
                raise self._error(f"must not have a {called}", _place(found))
        for child in _children(found):
            self._check(child, names)

    def _check_function(self, found: Mapping[str, Any]) -> None:
        name = str(found["function_name"]).lower()
        if name not in ALLOWED or found["schema"] or found["catalog"]:
            raise self._error(
                f"must not call {name}: the function is not in the list of allowed ones",
                _place(found),
            )
        if found["distinct"] or found["filter"] or found["order_bys"]["orders"]:
            raise self._error(f"must call {name} with values only", _place(found))
        index = CONSTANT_ARGUMENTS.get(name)
        if index is not None and not _is_short_text(found["arguments"], index):
            raise self._error(
                f"must call {name} with a constant text of at most {CONSTANT_MAX_CHARS} characters "
                f"as argument {index + 1}",
                _place(found),
            )

    def _use(self, found: Mapping[str, Any], names: frozenset[str]) -> None:
        path = self._path(found)
        if str(found["column_names"][0]).lower() in names:
            return
        if path[0] not in RECORD_COLUMNS:
            raise self._error(
                f"reads {path[0]!r}, which is no column: use {', '.join(RECORD_COLUMNS)}, or "
                "value.NAME for a field of the value",
                _place(found),
            )
        self._used.add(path[0])

    def _path(self, found: Mapping[str, Any]) -> list[str]:
        """The names of a column and of fields in it, in lower case, without the relation."""
        path = [str(each).lower() for each in found["column_names"]]
        return path[1:] if len(path) > 1 and path[0] in self._relations else path

    def _error(self, fault: str, place: int) -> StatementError:
        if place >= _NOT_FOUND:
            return StatementError(fault)
        before = self._text.encode()[:place].decode(errors="ignore")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return StatementError(f"{fault} (line {line}, column {column})")


def _place(found: Mapping[str, Any]) -> int:
    return int(found.get("query_location", _NOT_FOUND))


def _is_short_text(arguments: Sequence[Mapping[str, Any]], index: int) -> bool:
    if len(arguments) <= index:
        return True  # DuckDB refuses the call
    literal = arguments[index]["expression"].get("literal", {})
    return literal.get("kind") == "STRING" and len(literal["text"]) <= CONSTANT_MAX_CHARS


def _children(found: Any) -> Iterator[Mapping[str, Any]]:
    """The direct child expressions, which may be in nested lists and objects."""
    for value in found.values() if isinstance(found, dict) else found:
        if isinstance(value, dict) and "class" in value:
            yield value
        elif isinstance(value, dict | list):
            yield from _children(value)


def _lambda_names(found: Mapping[str, Any]) -> Iterator[str]:
    if found["class"] == "COLUMN_REF":
        yield str(found["column_names"][0]).lower()
    else:
        for child in _children(found):
            yield from _lambda_names(child)


def _text_of(tree: Any) -> str:
    changed = json.dumps({"error": False, "statements": [tree]})
    return answer("SELECT json_deserialize_sql(?::JSON)", changed)


def _tried(found: dict[str, Any]) -> dict[str, Any]:
    inner = found | {"alias": ""}
    return {"class": "OPERATOR", "type": "OPERATOR_TRY", "alias": "", "children": [inner]}


def _column(name: str) -> dict[str, Any]:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}
