"""The graph of an overview: sources, topics and sinks, and where each of them is drawn; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drover_gateway.console.links import connector_url
from drover_gateway.console.rows import Filters, Row, State

#: With more nodes, connectors are grouped by class and topics by the groups that use them.
NODES_MAX = 200
SOURCES, TOPICS, SINKS = range(3)
NODE_WIDTH, NODE_HEIGHT, ROW_GAP, COLUMN_GAP = 240, 40, 10, 130
_ORDER = {state: at for at, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Node:
    """A connector or a topic, or a group of them.

    Attributes:
        key: Identifies it.
        column: ``SOURCES``, ``TOPICS`` or ``SINKS``.
        label: Its name.
        note: A few more words.
        state: The worst state of its connectors; None for topics.
        href: The page with its connectors; empty for topics.
        size: The number of connectors or topics.
    """

    key: str
    column: int
    label: str
    note: str = ""
    state: State | None = None
    href: str = ""
    size: int = 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A node with the position of its upper left corner."""

    node: Node
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes with their positions, and edges from left to right between their keys.

    Attributes:
        nodes: By key.
        edges: Pairs of keys.
        is_grouped: Whether nodes are groups.
        height: The height of the drawing.
    """

    nodes: Mapping[str, Placed] = field(default_factory=dict)
    edges: Sequence[tuple[str, str]] = ()
    is_grouped: bool = False
    height: int = 0

    @property
    def width(self) -> int:
        """The width of the drawing."""
        return 3 * NODE_WIDTH + 2 * COLUMN_GAP


def graph_of(rows: Sequence[Row], topics: Mapping[str, Sequence[str]]) -> Graph:
    """The graph of connectors and their topics by connector."""
    used = {topic for row in rows for topic in topics.get(row.name, ())}
    is_grouped = len(rows) + len(used) > NODES_MAX
    nodes, edges = _grouped(rows, topics) if is_grouped else _single(rows, topics)
    placed = _place(nodes, edges)
    height = max((each.y + NODE_HEIGHT for each in placed.values()), default=0)
    return Graph(placed, sorted(edges), is_grouped, height)


def configured_topics(config: Mapping[str, str]) -> Sequence[str]:
    """The topics that a sink's config names; the statuses have them from its first record on."""
    return [name for each in config.get("topics", "").split(",") if (name := each.strip())]


def _column(row: Row) -> int:
    return SINKS if row.kind == "sink" else SOURCES


def _single(
    rows: Sequence[Row], topics: Mapping[str, Sequence[str]]
) -> tuple[list[Node], set[tuple[str, str]]]:
    nodes, edges = [], set()
    for row in rows:
        column, key = _column(row), f"c:{row.name}"
        lag = f" · lag {row.lag:,}" if row.lag is not None else ""
        href = connector_url(row.name)
        nodes.append(Node(key, column, row.name, f"{row.state.value}{lag}", row.state, href))
        for topic in topics.get(row.name, ()):
            edges.add((key, f"t:{topic}") if column == SOURCES else (f"t:{topic}", key))
    names = sorted({topic for row in rows for topic in topics.get(row.name, ())})
    nodes += [Node(f"t:{each}", TOPICS, each) for each in names]
    return nodes, edges


def _grouped(
    rows: Sequence[Row], topics: Mapping[str, Sequence[str]]
) -> tuple[list[Node], set[tuple[str, str]]]:
    """Connectors by class, and topics by the classes that write and read them."""
    by_class: dict[tuple[int, str], list[Row]] = defaultdict(list)
    users: dict[str, set[str]] = defaultdict(set)
    columns: dict[str, int] = {}
    for row in rows:
        column = _column(row)
        key = f"g:{column}:{row.short_class}"
        columns[key] = column
        by_class[column, row.short_class].append(row)
        for topic in topics.get(row.name, ()):
            users[topic].add(key)
    nodes = [_class_node(*key, members) for key, members in by_class.items()]
    by_users: dict[frozenset[str], list[str]] = defaultdict(list)
    for topic, keys in users.items():
        by_users[frozenset(keys)].append(topic)
    edges = set()
    for group, names in by_users.items():
        first = min(names)
        label = first if len(names) == 1 else f"{len(names):,} topics"
        note = "" if len(names) == 1 else f"{first} …"
        topic_key = f"t:{first}"
        nodes.append(Node(topic_key, TOPICS, label, note, size=len(names)))
        for key in group:
            edges.add((key, topic_key) if columns[key] == SOURCES else (topic_key, key))
    return nodes, edges


def _class_node(column: int, class_name: str, rows: Sequence[Row]) -> Node:
    state = min((each.state for each in rows), key=_ORDER.__getitem__)
    count = sum(each.state is state for each in rows)
    lags = [each.lag for each in rows if each.lag is not None]
    lag = f" · lag {sum(lags):,}" if lags else ""
    return Node(
        f"g:{column}:{class_name}",
        column,
        f"{len(rows):,} of {class_name or 'unknown class'}",
        f"{count:,} {state.value}{lag}",
        state,
        Filters(class_name=class_name).url(),
        len(rows),
    )


def _place(nodes: Iterable[Node], edges: set[tuple[str, str]]) -> dict[str, Placed]:
    """Each column from top to bottom: first what has failed, then near to its neighbours."""
    columns: dict[int, list[Node]] = {SOURCES: [], TOPICS: [], SINKS: []}
    for node in nodes:
        columns[node.column].append(node)
    neighbours: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        neighbours[start].append(end)
        neighbours[end].append(start)
    at: dict[str, int] = {}
    placed = {}
    for column in (SOURCES, TOPICS, SINKS):
        if column == SOURCES:
            ordered = sorted(columns[column], key=lambda each: (_rank(each), each.label))
        else:
            ordered = sorted(
                columns[column], key=lambda each: (_mean(each, neighbours, at), each.label)
            )
        for index, node in enumerate(ordered):
            at[node.key] = index
            x = column * (NODE_WIDTH + COLUMN_GAP)
            placed[node.key] = Placed(node, x, index * (NODE_HEIGHT + ROW_GAP))
    return placed


def _rank(node: Node) -> int:
    return _ORDER[node.state] if node.state is not None else 0


def _mean(node: Node, neighbours: Mapping[str, Sequence[str]], at: Mapping[str, int]) -> float:
    found = [at[each] for each in neighbours.get(node.key, ()) if each in at]
    return sum(found) / len(found) if found else float("inf")
