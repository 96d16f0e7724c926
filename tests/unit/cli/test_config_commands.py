"""``drover config validate --settings``."""

import json
from pathlib import Path
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.fake_cluster import FakeCluster, Run


def test_settings_are_shown_by_group_with_what_fits(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("name: c\nconnector.class: JdbcSink\n")

    def value(name: str, group: str, order: int, **more: Any) -> pb.ConfigValue:
        key = pb.ConfigKey(name=name, group=group, order=order, dependents=["x"])
        return pb.ConfigValue(key=key, **{"visible": True, **more})

    values = [
        value("pk.mode", "Keys", 2, recommended_values=["record_key"]),
        value("pk.first", "Keys", 1, value="v"),
        value("pk.fields", "Keys", 3, visible=False),
        value("url", "Connection", 1),
    ]
    answer = pb.ValidateConfigResponse(values=values, groups=["Keys", "Connection"])
    cluster.answers["ValidateConfig"] = answer
    for command in ("config", "connector"):
        out = drover(command, "validate", "-f", str(file), "--settings")[1]
        assert [line.split() for line in out.splitlines()] == [
            ["KEYS", "VALUE", "RECOMMENDED"],
            ["pk.first", "v"],
            ["pk.mode", "-", "record_key"],
            [],
            ["CONNECTION", "VALUE", "RECOMMENDED"],
            ["url", "-"],
            [],
            ["no", "faults"],
        ]
    out = drover("config", "validate", "-f", str(file), "-o", "json")[1]
    document = json.loads(out)
    assert document["groups"] == ["Keys", "Connection"]
    first = document["configs"][0]
    assert (first["definition"]["order"], first["definition"]["dependents"]) == (2, ["x"])
    assert first["value"]["recommended_values"] == ["record_key"]
    assert [each["value"]["visible"] for each in document["configs"]] == [True, True, False, True]
