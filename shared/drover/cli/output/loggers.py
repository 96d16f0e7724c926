"""The levels of a logger on the workers of a cluster."""

from collections.abc import Mapping

from drover.api.connect.v1 import connect_service_pb2 as pb


def levels_of(logger: pb.Logger) -> Mapping[str, str]:
    """The workers with each level: "all" if no worker has another one."""
    if logger.level:
        return {logger.level: "all"}
    found: dict[str, list[str]] = {}
    for each in logger.worker_levels:
        found.setdefault(each.level, []).append(each.worker_id)
    return {level: ", ".join(workers) for level, workers in sorted(found.items())}
