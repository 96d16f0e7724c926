"""An example of a connector's definition, for ``drover plugin describe``."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb

#: The documented definitions of the built-in connectors; ``make docs`` writes the file.
EXAMPLES_FILE = "plugin_examples.yaml"
_CLASS, _TOPICS = "connector.class", "topics"


def example_of(plugin: pb.Plugin, keys: Iterable[pb.ConfigKey]) -> Mapping[str, Any]:
    """The documented definition of a built-in connector; of others one with the required settings,
    whose values name the type to fill in.
    """
    names = {plugin.class_name, *plugin.aliases}
    for each in _documented():
        if each["config"][_CLASS] in names:
            return each
    name = plugin.aliases[0] if plugin.aliases else plugin.class_name
    config = {_CLASS: name}
    if plugin.type == pb.CONNECTOR_TYPE_SINK:
        config[_TOPICS] = "<LIST>"
    for key in keys:
        if key.required and key.name not in config:
            config[key.name] = key.valid_values[0] if key.valid_values else f"<{key.type}>"
    return {"name": "<STRING>", "config": config}


@cache
def _documented() -> list[Mapping[str, Any]]:
    import yaml

    text = files("drover.cli.output").joinpath(EXAMPLES_FILE).read_text(encoding="utf-8")
    return list(yaml.safe_load(text))
