"""The header of Kafka's record batches, format 2 (KIP-98), and their codec numbers."""

import struct

MAGIC = 2
#: Base offset, length, leader epoch, magic and checksum; the checksum covers the rest.
HEAD = struct.Struct(">qiibI")
#: Attributes, last offset delta, first and last timestamp, producer id, epoch, sequence, count.
REST = struct.Struct(">hiqqqhii")
#: The size of a batch without its records.
OVERHEAD_BYTES = HEAD.size + REST.size
#: Bits of the attributes.
CODEC, LOG_APPEND_TIME, TRANSACTIONAL = 0x07, 0x08, 0x10
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
#: The largest varint before a record.
LENGTH_BYTES_MAX = 5
