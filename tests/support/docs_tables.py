"""Generated tables of the docs pages: ``make docs`` writes them, a test compares them.

So are the examples that ``drover plugin describe`` shows.

A table is between two marks. The first mark selects its content::

    <!-- settings of FilesSource -->
    <!-- settings of HttpSource and HttpSink: HTTP -->        groups, of connectors that share them
    <!-- settings of every connector -->                      or source, or sink
    <!-- settings of the converter AvroConverter -->
    <!-- classes of Kafka Connect -->
    <!-- systems of other connectors -->
    <!-- predictions of examples -->
    <!-- settings of Kafka Connect's that JdbcSink lacks -->
    <!-- metrics of worker -->                                or of other processes
    <!-- terminal when an API is down -->                     see terminal_texts
    <!-- resources of the REST API -->
    <!-- differences of the REST API -->
    <!-- end -->
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from drover.cli.output.plugin_examples import EXAMPLES_FILE
from drover.config.other_products import SYSTEMS
from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Connector,
    SinkConnector,
    SourceConnector,
)
from drover.connector.catalogue import PluginRegistry
from drover.connector.settings import full_config_def
from drover.convert.registry import CONVERTERS
from drover.metrics.table import METRICS
from drover_gateway.rest.table import RESOURCES, Operation
from tests.support.docs_examples import config_of
from tests.support.llms_txt import LLMS_TXT, llms_text
from tests.support.predictions import EXAMPLES
from tests.support.repository import REPOSITORY, tracked_files
from tests.support.terminal_texts import terminal_text

#: The recorded answers of Kafka Connect's REST API.
REST_CORPUS = REPOSITORY / "tests" / "data" / "rest_corpus"

#: The definitions that ``drover plugin describe`` shows.
PLUGIN_EXAMPLES = REPOSITORY / "shared" / "drover" / "cli" / "output" / EXAMPLES_FILE

_MARKED = re.compile(r"^<!-- (?P<what>[^\n]+) -->\n(?P<table>(?:.*\n)*?)<!-- end -->$", re.M)
_TERMINAL = "terminal when "
_HEAD = "| Setting | Type | Default | Meaning |\n|---|---|---|---|\n"
#: A word with its surrounding punctuation: an opening parenthesis, and closing characters.
_WORD = re.compile(r"(?P<open>\(?)(?P<word>[^\s]*?)(?P<end>[.,;:)]*)(?=\s|$)")


class _AnySource(SourceConnector):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        raise NotImplementedError


class _AnySink(SinkConnector):
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        raise NotImplementedError


@cache
def connectors() -> Mapping[str, type[Connector]]:
    """The built-in connectors by name, in order."""
    plugins, problems = PluginRegistry().list()
    assert not problems, problems
    found = {each.connector_class.__name__: each.connector_class for each in plugins}
    own = {name: each for name, each in found.items() if each.__module__.startswith("drover.")}
    return dict(sorted(own.items()))


def pages() -> list[Path]:
    """The pages that may have tables, relative to the root."""
    return [each for each in tracked_files() if each.suffix == ".md" and each.parts[0] == "docs"]


def marks(text: str) -> list[str]:
    """The contents of a page's tables, by their marks."""
    return [found["what"] for found in _MARKED.finditer(text)]


def written(text: str) -> str:
    """A page with its tables regenerated from the code.

    Raises:
        ValueError: A mark is unknown.
    """
    return _MARKED.sub(
        lambda found: f"<!-- {found['what']} -->\n{_table(found['what'])}<!-- end -->", text
    )


def shown_groups(what: str) -> Iterator[tuple[str, str]]:
    """The (connector, group) pairs whose settings are all in a table."""
    for name, groups in _settings_of(what):
        for group in groups:
            yield name, group


def groups_of(kind: type[Connector]) -> list[str]:
    """The groups of a connector's own settings, in order."""
    return list(dict.fromkeys(each.group for each in kind.config_def()))


def _settings_of(what: str) -> list[tuple[str, list[str]]]:
    found = re.fullmatch(r"settings of (\w+(?: and \w+)*)(?:: (.+))?", what)
    if found is None:
        return []
    names = found[1].split(" and ")
    listed = [each.strip() for each in found[2].split(",")] if found[2] else None
    return [(name, listed or groups_of(connectors()[name])) for name in names]


def _table(what: str) -> str:
    if what in _FIXED:
        return _FIXED[what]()
    if what.startswith("settings of the converter "):
        keys = CONVERTERS.find(what.split()[-1]).config_def()
        return _settings(keys, list(dict.fromkeys(each.group for each in keys)))
    if what.startswith("settings of Kafka Connect's that ") and what.endswith(" lacks"):
        return _lacking(what.split()[5])
    if what.startswith(_TERMINAL):
        return terminal_text(what.removeprefix(_TERMINAL))
    if what.startswith("metrics of "):
        return _metrics(what.removeprefix("metrics of "))
    shown = _settings_of(what)
    if not shown:
        raise ValueError(f"no table is called {what!r}")
    tables = {_settings(connectors()[name].config_def(), groups) for name, groups in shown}
    if len(tables) > 1:
        raise ValueError(f"{what!r} are not the same in all of them")
    return tables.pop()


def _settings(keys: ConfigDef | Sequence[ConfigKey], groups: Sequence[str]) -> str:
    keys = list(keys)
    missing = set(groups) - {each.group for each in keys}
    if missing:
        raise ValueError(f"no setting is in the group {missing.pop()!r}")
    rows = []
    for group in groups:
        if len(groups) > 1:
            rows.append(f"| **{group}** | | | |\n")
        rows += [_row(each) for each in keys if each.group == group]
    return _HEAD + "".join(rows)


def _row(key: ConfigKey) -> str:
    if key.required:
        default = "required"
    else:
        text = key.default_text
        default = f"`{text}`" if text else ""
    meaning = _as_code(key.documentation)
    unsaid = [
        each
        for each in key.valid_values
        if not re.search(rf"(?<!\w){re.escape(each)}(?!\w)", meaning)
    ]
    if unsaid and key.type is not ConfigType.BOOLEAN:
        meaning += f" One of {', '.join(f'`{each}`' for each in key.valid_values)}."
    return f"| `{key.name}` | {key.type.lower()} | {default} | {meaning} |\n"


def _as_code(text: str) -> str:
    """Mark up names of settings, patterns, placeholders and URLs as code."""
    return " ".join(_word_as_code(each) for each in text.split()).replace("|", r"\|")


def _word_as_code(text: str) -> str:
    found = _WORD.fullmatch(text)
    assert found is not None
    word = found["word"]
    is_code = any(each in word for each in ("*", "${", "://", "__")) or (
        "." in word and word in _known_names()
    )
    return f"{found['open']}`{word}`{found['end']}" if is_code else text


@cache
def _known_names() -> frozenset[str]:
    kinds: list[type[Connector]] = [*connectors().values(), _AnySource, _AnySink]
    return frozenset(key.name for kind in kinds for key in full_config_def(kind))


def _common(of: Callable[[str], bool]) -> str:
    keys = full_config_def(_AnySource) | full_config_def(_AnySink)
    chosen = [each for each in keys if of(each.name)]
    return _settings(chosen, list(dict.fromkeys(each.group for each in chosen)))


def _of_source(name: str) -> bool:
    return name in full_config_def(_AnySource)


def _of_sink(name: str) -> bool:
    return name in full_config_def(_AnySink)


def java_names(kind: type[Connector]) -> list[str]:
    """The class names of Kafka Connect's connectors that a connector replaces."""
    return [each for each in kind.aliases if each.startswith(("io.", "org."))]


def _classes() -> str:
    rows = [
        f"| `{java}` | `{name}` |\n"
        for name, kind in connectors().items()
        for java in java_names(kind)
    ]
    return "| Class of Kafka Connect | Runs as |\n|---|---|\n" + "".join(sorted(rows))


def _systems() -> str:
    systems = sorted(SYSTEMS, key=lambda each: each.name.lower())
    rows = [
        f"| {each.name} | {_first_name(each.source)} | {_first_name(each.sink)} |\n"
        for each in systems
        if each.source or each.sink
    ]
    missing = ", ".join(each.name for each in systems if not (each.source or each.sink))
    head = "| System | Nearest source | Nearest sink |\n|---|---|---|\n"
    return f"{head}{''.join(rows)}| {missing} | none | none |\n"


def _first_name(nearest: str) -> str:
    name, comma, how = nearest.partition(",")
    if not name:
        return "none"
    return f"`{name}`{comma} {_as_code(how)}" if comma else f"`{name}`"


def _predictions() -> str:
    rows = [
        f"| `{name}` | [`{each.name}`]({each.page}.md) | no fault | {each.preview} | {each.run} |"
        f" {each.server} |\n"
        for name, each in EXAMPLES.items()
    ]
    head = "| Connector | Example | Validation | Preview | Run: equal to the preview | Server |\n"
    return f"{head}|---|---|---|---|---|---|\n{''.join(rows)}"


def _lacking(name: str) -> str:
    others = connectors()[name].other_settings
    told: dict[str, list[str]] = {}
    for other, meant in others.renamed.items():
        told.setdefault(_renamed(meant), []).append(other)
    for other, accepted in others.refused.items():
        values = ", ".join(f"`{each}`" for each in accepted if each)
        text = f"a fault, unless it is {values}" if values else "a fault"
        told.setdefault(text, []).append(other)
    for other, instead in others.without_effect.items():
        text = f"no effect{f': {_as_code(instead)}' if instead else ''}"
        told.setdefault(text, []).append(other)
    for class_name, settings in others.defaults.items():
        for other, value in settings.items():
            told.setdefault(f"`{value}` by default with the class `{class_name}`", []).append(other)
    rows = [
        f"| {', '.join(f'`{each}`' for each in names)} | {text} |\n" for text, names in told.items()
    ]
    return "| Setting | Here |\n|---|---|\n" + "".join(rows)


def _renamed(meant: str | Mapping[str, Mapping[str, str]]) -> str:
    if isinstance(meant, str):
        return f"is `{meant}`"
    means = (
        f"`{value}`: {', '.join(f'`{own}={text}`' for own, text in settings.items())}"
        for value, settings in meant.items()
    )
    return "; ".join(means)


def _metrics(where: str) -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)}"
        f" | {each.meaning} | {each.jmx} |\n"
        for each in METRICS
        if each.where == where
    ]
    if not rows:
        raise ValueError(f"no table is of the metrics of {where!r}")
    head = "| Metric | Type | Labels | Meaning | Kafka Connect's, by JMX |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def _resources() -> str:
    rows = [
        f"| {each.method} `{resource.path}` | {_rpcs(each)} | {_statuses(each.success)}"
        f" | {_statuses(each.errors)} | {_as_code(each.summary)}{_queries(each)} |\n"
        for resource in RESOURCES
        for each in resource.operations
    ]
    head = "| Request | RPC | Success | Own errors | Meaning |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def _rpcs(operation: Operation) -> str:
    return ", ".join(f"`{each}`" for each in operation.rpcs)


def _statuses(statuses: Sequence[int]) -> str:
    return ", ".join(str(each) for each in statuses)


def _queries(operation: Operation) -> str:
    texts = (f" `{name}`: {_as_code(text)}." for name, text in operation.query.items())
    return "".join(texts)


def _rest_differences() -> str:
    rules = json.loads((REST_CORPUS / "differences.json").read_text(encoding="utf-8"))
    rows = [
        f"| {', '.join(f'`{each}`' for each in rule['cases'])} | {_as_code(rule['why'])} |\n"
        for rule in rules
    ]
    return "| Recorded requests | Difference, and its reason |\n|---|---|\n" + "".join(rows)


_FIXED: Mapping[str, Callable[[], str]] = {
    "settings of every connector": lambda: _common(
        lambda name: _of_source(name) and _of_sink(name)
    ),
    "settings of every source": lambda: _common(lambda name: not _of_sink(name)),
    "settings of every sink": lambda: _common(lambda name: not _of_source(name)),
    "classes of Kafka Connect": _classes,
    "systems of other connectors": _systems,
    "predictions of examples": _predictions,
    "resources of the REST API": _resources,
    "differences of the REST API": _rest_differences,
}


def plugin_examples() -> str:
    """The file of the definitions that ``drover plugin describe`` shows."""
    found = []
    for each in EXAMPLES.values():
        config = config_of(each.page, each.name)
        found.append({"name": config.pop("name"), "config": config})
    return yaml.safe_dump(found, sort_keys=False, width=120)


def main() -> int:
    """Write the tables into the pages, and two files; returns 0 if the tables are up to date."""
    PLUGIN_EXAMPLES.write_text(plugin_examples(), encoding="utf-8")
    for page in pages():
        path = REPOSITORY / page
        text = path.read_text(encoding="utf-8")
        new = written(text)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(page)  # noqa: T201
    LLMS_TXT.write_text(llms_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
