"""Fixtures for tests of mirrored topics, besides a broker: Spark and an embedded store."""

from tests.spark.conftest import pipeline, spark

__all__ = ["pipeline", "spark"]
