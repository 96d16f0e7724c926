"""``drover plugin list``, where workers differ."""

import json

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.fake_cluster import FakeCluster, Run


def test_a_plugin_that_some_workers_lack_names_those_that_have_it(
    cluster: FakeCluster, drover: Run
) -> None:
    answer = pb.ListPluginsResponse(
        plugins=[
            pb.Plugin(class_name="a.New", version="2", worker_ids=["w:1"]),
            pb.Plugin(class_name="a.Old", version="1"),
        ],
        worker_ids=["w:1", "w:2"],
        silent_worker_ids=["w:3"],
    )
    cluster.answers["ListPlugins"] = answer
    lines = drover("plugin", "list")[1].splitlines()
    assert lines[0].split()[-2:] == ["ONLY", "ON"]
    assert lines[1].split() == ["a.New", "2", "w:1"]
    assert lines[2].split() == ["a.Old", "1"]
    assert lines[3] == "no answer from w:3"
    documents = json.loads(drover("plugin", "list", "-o", "json")[1])
    assert [each["workers"] for each in documents] == [["w:1"], ["w:1", "w:2"]]
