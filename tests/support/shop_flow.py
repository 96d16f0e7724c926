"""Rows of a container cluster's database that change capture copies to Parquet files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.dataset

from tests.support.compose import WAIT_S, ComposeCluster
from tests.support.waiting import wait_until

CAPTURE = """
name: capture
config:
  connector.class: PostgresCdcSource
  database.hostname: shop
  database.user: drover
  database.password: drover
  database.dbname: shop
  topic.prefix: shop
  table.include.list: public.orders
  record.layout: flat
"""
FILES = """
name: files
config: {connector.class: FilesSink, topics: shop.public.orders, path: /files/orders}
"""


@dataclass
class Flow:
    """Rows that flow from a database table through a topic to Parquet files."""

    cluster: ComposeCluster
    #: Whether each row must occur exactly once, after any number of kills.
    once: bool = True
    count: int = 0

    def insert(self, count: int = 50) -> None:
        """Insert the next rows, in one transaction."""
        first, self.count = self.count + 1, self.count + count
        self.cluster.shop(f"INSERT INTO orders SELECT generate_series({first}, {self.count})")

    def arrived(self) -> list[int]:
        """The ids in the files."""
        found = pyarrow.dataset.dataset(self.cluster.files / "orders", format="parquet")
        if not found.files:
            return []
        return sorted(found.to_table(columns=["id"]).column("id").to_pylist())

    def wait_until_all_are_there(self) -> None:
        """Wait for all rows; each must occur once if ``once`` is set."""
        wait_until(
            lambda: set(range(1, self.count + 1)) <= set(self._arrived()),
            timeout_s=WAIT_S,
            describe=lambda: f"{len(self._arrived())} of {self.count}",
        )
        arrived = self.arrived()
        assert (arrived if self.once else sorted(set(arrived))) == list(range(1, self.count + 1))

    def _arrived(self) -> list[int]:
        try:
            return self.arrived()
        except OSError:
            return []  # no file yet, or one that was just removed


@contextmanager
def running_flow(cluster: ComposeCluster, *, once: bool = True) -> Iterator[Flow]:
    """A flow whose first rows have arrived."""
    cluster.shop("CREATE TABLE orders (id int PRIMARY KEY)")
    made = Flow(cluster, once)
    made.insert()
    cluster.drover("connector", "create", "-f", "-", stdin=CAPTURE)
    cluster.drover("connector", "create", "-f", "-", stdin=FILES)
    made.wait_until_all_are_there()
    yield made
    for name in ("files", "capture"):
        cluster.drover("connector", "delete", name)
