"""Python Data Sources of Spark, for tests: a streaming one, a simple one, one without streams."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)


class Span(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class CounterReader(DataSourceStreamReader):
    """Numbers up to the one in a file, in partitions of three."""

    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return {"next": int(Path(self._path).read_text())}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        edges = [*range(start["next"], end["next"], 3), end["next"]]
        return [Span(a, b) for a, b in pairwise(edges)]

    def read(self, partition: Any) -> Iterator[tuple[int, str]]:
        for number in range(partition.start, partition.end):
            yield number, f"number {number}"

    def commit(self, end: dict[str, Any]) -> None:
        with Path(f"{self._path}.commits").open("a") as file:
            file.write(f"{json.dumps(end)}\n")


class Counter(DataSource):
    def schema(self) -> str:
        return "id INT, text STRING"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return CounterReader(self.options["PATH"])  # option names are case-insensitive


class LinesReader(SimpleDataSourceStreamReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, Any]:
        return {"line": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        lines = Path(self._path).read_text().splitlines()[start["line"] :]
        return iter([(line,) for line in lines]), {"line": start["line"] + len(lines)}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        raise AssertionError("is not asked for")

    def commit(self, end: dict[str, Any]) -> None:
        pass


class Lines(DataSource):
    def schema(self) -> str:
        return "line STRING"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return LinesReader(self.options["path"])


class WholeReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(1), InputPartition(2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class Whole(DataSource):
    def schema(self) -> str:
        return "part INT"

    def reader(self, schema: Any) -> DataSourceReader:
        return WholeReader()
