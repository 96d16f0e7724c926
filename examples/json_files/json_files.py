"""A source that reads JSON files and a sink that writes text files."""

from pathlib import Path

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)


class JsonFilesTask(SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self._context = context
        self._directory = Path(context.config["directory"])
        self._partition = {"directory": str(self._directory)}
        self._last = (context.offset(self._partition) or {"last": ""})["last"]

    def poll(self) -> SourceBatch | None:
        names = sorted(p.name for p in self._directory.glob("*.json") if p.name > self._last)[:100]
        if not names:
            return None
        rows = self._context.spark.read.json([str(self._directory / name) for name in names])
        self._last = names[-1]
        return SourceBatch(
            rows.selectExpr("to_json(struct(*)) AS value"),
            [(self._partition, {"last": self._last})],
            topic=self._context.config["topic"],
        )


class JsonFiles(SourceConnector):
    """Reads new JSON files of a directory in the order of their names; each row is a record."""

    version = "1.0"
    task_class = JsonFilesTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="The folder to read."),
            ConfigKey("topic", ConfigType.STRING, documentation="The topic to write to."),
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}]


class JsonFolderTask(SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self._root = context.config["directory"]

    def write(self, batch: SinkBatch) -> str:
        # a redelivered batch starts at the same offsets, so it overwrites its own folders
        for each in batch.ranges:
            folder = f"{each.topic}-{each.partition}-{each.start_offset:020}"
            rows = batch.frame.where(f"topic = '{each.topic}' AND partition = {each.partition}")
            values = rows.selectExpr("cast(value AS string) AS value")
            values.write.mode("overwrite").text(f"{self._root}/{folder}")
        return ""


class JsonFolder(SinkConnector):
    """Writes the records of topics to folders of text files, one record per line."""

    version = "1.0"
    task_class = JsonFolderTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(
            ConfigKey("directory", ConfigType.STRING, documentation="The parent folder.")
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        # the engine distributes the topic partitions over the tasks, one task per config
        return [{} for _ in range(max_tasks)]
