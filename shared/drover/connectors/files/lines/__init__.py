"""Files of lines: FileStreamSource and FileStreamSink."""
