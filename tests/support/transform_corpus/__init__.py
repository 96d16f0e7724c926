"""The golden corpus of Kafka Connect's transforms: what the real ones make of many records.

``python -m tests.support.transform_corpus`` answers the cases on the JVM and writes them to
tests/golden/transforms. ``cases`` tells the form of a case.
"""
