"""The checksum of Kafka's record batches: CRC-32C."""

import google_crc32c
from aiokafka.record.util import calc_crc32c

#: Of bytes. The processor computes it where a wheel has the instructions for it, ten times as fast
#: as aiokafka's; the other kind of that library is Python, and slower than that by far.
crc32c = google_crc32c.value if google_crc32c.implementation == "c" else calc_crc32c
