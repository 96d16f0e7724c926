"""Commands take the file of a definition as an argument or as an option."""

from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.fake_cluster import FakeCluster, Run


def written(tmp_path: Path) -> str:
    path = tmp_path / "flights.json"
    path.write_text('{"name": "flights", "config": {"connector.class": "FileStreamSink"}}')
    return str(path)


@pytest.mark.parametrize("words", ["connector create", "config validate", "connector validate"])
def test_the_file_of_a_definition_is_an_argument_or_an_option(
    cluster: FakeCluster, drover: Run, tmp_path: Path, words: str
) -> None:
    cluster.answers["CreateConnector"] = pb.CreateConnectorResponse(
        connector=pb.Connector(name="flights")
    )
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse()
    path = written(tmp_path)
    for given in ([path], ["-f", path], ["--file", path]):
        assert drover(*words.split(), *given)[0] == 0
    asked = len(cluster.requests)
    for given, fault in (([path, "-f", path], "give one file"), ([], "give the file")):
        code, _, err = drover(*words.split(), *given)
        assert (code, fault in err) == (2, True)
    assert len(cluster.requests) == asked


def test_a_preview_and_a_plan_take_the_file_as_an_option_too(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    cluster.answers["PreviewConnector"] = pb.PreviewConnectorResponse()
    cluster.answers["PlanConnectorConfig"] = pb.PlanConnectorConfigResponse(plan_hash="ab")
    for verb in ("preview", "plan"):
        for given in (["-f"], []):
            assert drover("connector", verb, *given, written(tmp_path))[0] == 0
