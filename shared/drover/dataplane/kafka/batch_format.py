"""The head of a record batch of Kafka, format 2 (KIP-98), and the numbers of codecs in it."""

import struct

MAGIC = 2
#: Base offset, length, leader epoch, magic and checksum; the last covers what follows it.
HEAD = struct.Struct(">qiibI")
#: Attributes, last offset delta, first and last timestamp, producer id, epoch, sequence, count.
REST = struct.Struct(">hiqqqhii")
#: What a batch takes besides its records.
OVERHEAD_BYTES = HEAD.size + REST.size
#: In attributes.
CODEC, LOG_APPEND_TIME, TRANSACTIONAL = 0x07, 0x08, 0x10
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
#: Of the varint before a record.
LENGTH_BYTES_MAX = 5
