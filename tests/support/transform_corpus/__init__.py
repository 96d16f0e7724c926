"""The golden corpus of Kafka Connect's transforms: the real ones' results for many records.

``python -m tests.support.transform_corpus`` runs the cases on the JVM and writes the results to
tests/golden/transforms. ``cases`` documents the form of a case.
"""
