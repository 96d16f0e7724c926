"""A program that validates configs in a validation process, as an engine does.

Reads the requests from stdin, as a JSON list of objects with config, use_systems, limit_ms,
on_kafka and the directory of the storage, runs all of them at once, and writes the reports as a
JSON list.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

from drover.api.engine.v1 import engine_pb2
from drover.log.storage import EmbeddedStorage, KafkaStorage, Storage
from drover_worker.engine.plugins.validation_process import start_validation_process
from drover_worker.engine.settings import EngineLimits, EngineSettings

if TYPE_CHECKING:
    from drover_worker.engine.plugins.validations import ValidationProcess

#: The environment that an engine gets from its herder.
SECRET = "CANARY-OF-THE-ENVIRONMENT"


def answer(process: "ValidationProcess", request: dict[str, Any]) -> dict[str, Any]:
    storage: Storage = EmbeddedStorage(Path(request.get("directory", "/nowhere")))
    if request.get("on_kafka"):
        storage = KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="drover")
    settings = EngineSettings(
        storage=storage,
        config_providers={"env": {"class": "env"}},
        limits=EngineLimits(validate_ms=request.get("limit_ms", 30_000)),
    )
    wanted = engine_pb2.ValidateConfig(config=request["config"], use_systems=request["use_systems"])
    report = process.validate(wanted, settings=settings, environment=[f"CANARY={SECRET}".encode()])
    return MessageToDict(report, preserving_proto_field_name=True)


def main() -> None:
    control = start_validation_process()
    # after the fork, as in an engine
    from drover_worker.engine.plugins.validations import ValidationProcess

    process = ValidationProcess(control)
    os.environ["CANARY"] = SECRET
    requests = json.load(sys.stdin)
    with ThreadPoolExecutor(len(requests)) as pool:
        json.dump(list(pool.map(lambda each: answer(process, each), requests)), sys.stdout)


if __name__ == "__main__":
    main()
