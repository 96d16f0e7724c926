"""Which symbols of a library a program uses, from its syntax tree."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call, or at most of all calls: the count of positional ones, and keywords."""

    positional_count: int = 0
    keywords: frozenset[str] = frozenset()


def passed(positional_count: int, *keywords: str) -> Arguments:
    """The arguments with these keywords."""
    return Arguments(positional_count, frozenset(keywords))


class LibraryUses:
    """The symbols of a library that one program uses, besides documented ones.

    Args:
        program: The text of the program.
        library: The library's package.
        documented: The symbols to leave out, with all that is in them.
    """

    def __init__(self, program: str, library: str, documented: Collection[str] = ()) -> None:
        self._library = library
        self._documented = tuple(documented)
        #: The arguments of each call, by symbol; empty for one that is only named.
        self.symbols: dict[str, list[Arguments]] = defaultdict(list)
        #: The names of all attributes that are read, of any object.
        self.attributes: set[str] = set()
        #: Imported symbols by local name.
        self._meanings: dict[str, str] = {}
        #: Base classes of the library by the local subclass that has no ``__init__``.
        self._bases: dict[str, str] = {}
        tree = ast.parse(program)
        for node in ast.walk(tree):
            self._import(node)
        for node in ast.walk(tree):
            self._class(node)
        for node in ast.walk(tree):
            self._use(node)

    def _import(self, node: ast.AST) -> None:
        library = self._library
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == library:
                    self._add(each.name)
                    self._meanings[each.asname or library] = each.name if each.asname else library
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library:
            for each in node.names:
                self._meanings[each.asname or each.name] = f"{node.module}.{each.name}"
                self._add(f"{node.module}.{each.name}")
        elif isinstance(node, ast.Constant) and str(node.value).startswith(f"{library}."):
            self._add(str(node.value))  # for importlib

    def _class(self, node: ast.AST) -> None:
        if not isinstance(node, ast.ClassDef):
            return
        for base in node.bases:
            symbol = self._meaning(base.value if isinstance(base, ast.Subscript) else base)
            if symbol is None or symbol.startswith(self._documented):
                continue
            defined = set(_names_defined(node))
            if "__init__" not in defined:
                self._bases[node.name] = symbol
            for name in defined:
                if not name.startswith("_"):
                    self._add(f"{symbol}.{name}")

    def _use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                self.attributes.add(node.attr)
            symbol = self._meaning(node)
            if symbol is not None:
                self._add(symbol)
        elif isinstance(node, ast.Call):
            symbol = self._meaning(node.func)
            if symbol is None and isinstance(node.func, ast.Name):
                symbol = self._bases.get(node.func.id)
            if symbol is not None:
                keywords = frozenset(each.arg for each in node.keywords if each.arg)
                self._add(symbol, Arguments(len(node.args), keywords))

    def _meaning(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._meanings.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._meaning(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return None

    def _add(self, symbol: str, arguments: Arguments | None = None) -> None:
        if not symbol.startswith(self._documented):
            self.symbols[symbol] += [arguments] if arguments else []


def _names_defined(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
