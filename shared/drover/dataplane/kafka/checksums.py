"""The checksum of Kafka's record batches: CRC-32C."""

import google_crc32c
from aiokafka.record.util import calc_crc32c

#: Uses the processor's instruction if the wheel supports it, ten times as fast as aiokafka; the
#: library's pure Python version would be far slower.
crc32c = google_crc32c.value if google_crc32c.implementation == "c" else calc_crc32c
