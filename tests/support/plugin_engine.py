"""An engine that validates configs of the installed connectors as a real one, and runs nothing."""

from collections.abc import Mapping
from functools import cache

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRecord, PreviewedRow, StepSchemas
from drover.api.engine.v1 import engine_pb2 as pb
from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginNotFoundError, PluginRegistry
from drover_worker.engine.plugins.validation import encode_plugins, validate
from tests.support.fake_engine import FakeEngine

#: A preview whose records have this topic fails in a step.
FAULTY = "faulty"


@cache
def registry() -> PluginRegistry:
    """The installed connectors."""
    return PluginRegistry()


@cache
def _listed() -> pb.PluginList:
    return encode_plugins(*registry().list())


class PluginEngine(FakeEngine):
    """Has the installed connectors beside the ones of ``FakeEngine``."""

    async def call(self, command: pb.EngineCommand, timeout_s: float) -> pb.EngineReport:
        """See ``FakeEngine``."""
        what = command.WhichOneof("command")
        if what == "validate_config" and self._is_real(command.validate_config.config):
            config = dict(command.validate_config.config)
            found = validate(registry(), Resolution(config, config), use_systems=False)
            return pb.EngineReport(validation=found)
        if what == "preview_connector" and self._is_real(command.preview_connector.config):
            return pb.EngineReport(preview=_preview(dict(command.preview_connector.config)))
        report = await super().call(command, timeout_s)
        if what == "list_plugins":
            report.plugins.MergeFrom(_listed())
        return report

    def _plugin(self, config: Mapping[str, str]) -> pb.Plugin | None:
        if self._is_real(config):
            return pb.Plugin(class_name=config["connector.class"], type="source")
        return super()._plugin(config)

    def _is_real(self, config: Mapping[str, str]) -> bool:
        name = config.get("connector.class", "")
        if not name or name.startswith("tests.") or name in self.lacking:
            return False
        try:
            registry().find(name)
        except PluginNotFoundError:
            return False
        return True


def _preview(config: Mapping[str, str]) -> Preview:
    """Two records after two steps; the second one fails if its topic is ``FAULTY``."""
    steps = ["read", "mask", "write"]
    topic = config.get("topic", "")
    good = PreviewedRecord(topic=topic, key='"k"', value='{"id": 1, "note": "<b>bold</b>"}')
    rows = [PreviewedRow(place="file:1", records=[good] * len(steps))]
    rows.append(
        PreviewedRow(place="file:2", records=[good], failed_step="mask", error="no field <i>x</i>")
        if topic == FAULTY
        else PreviewedRow(place="file:2", records=[good], dropped_by="mask")
    )
    schemas = [StepSchemas(step=each, values=["struct<id: int64>"]) for each in steps[:2]]
    return Preview(steps=steps, rows=rows, schemas=schemas, notes=["a note of the preview"])
