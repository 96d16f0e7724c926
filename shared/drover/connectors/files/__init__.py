"""Files and object stores: FilesSource, FilesSink, S3Sink and FileStream connectors."""
