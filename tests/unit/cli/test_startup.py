"""A command imports only the modules that it uses."""

import os
import subprocess
import sys

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.support.fake_cluster import FakeCluster

#: Libraries that few commands need, each some per cent of the start of a command.
_SELDOM = ("yaml", "structlog", "rich", "cryptography", "confluent_kafka", "pyarrow")
_PROGRAM = """
import sys
from drover.cli.main import app
code = app(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def test_listing_connectors_loads_no_library_that_it_does_not_use(cluster: FakeCluster) -> None:
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "connector", "list"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "no connectors\n"
    loaded = {*done.stderr.split()}
    assert "drover.cli.commands.connector" in loaded
    assert set() == loaded & {*_SELDOM, "drover.cli.commands.topic", "drover.cli.commands.cluster"}
