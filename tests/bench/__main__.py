"""`make bench`: every figure, one JSON object a line."""

from tests.bench import cluster, heartbeats


def main() -> None:
    """Run all of them, the quick ones first."""
    heartbeats.run()
    cluster.run()


if __name__ == "__main__":
    main()
