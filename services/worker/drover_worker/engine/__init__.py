"""The engine process: the Spark session and all plugin code."""
