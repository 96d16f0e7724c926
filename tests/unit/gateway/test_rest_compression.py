import gzip

import pytest

from drover_gateway.rest.compression import Compressor, accepts_gzip


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip;q=0.5", True),
        ("gzip ; q=1", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("deflate, br", False),
        ("gzipped", False),
        ("gzip;q=x", False),
    ],
)
def test_the_header_admits_gzip(header: str | None, *, accepted: bool) -> None:
    assert accepts_gzip(header) == accepted


@pytest.mark.parametrize("size", [2_000, 200_000, 2_000_000])
async def test_a_body_is_compressed_once(size: int) -> None:
    compressor = Compressor()
    body = b"ab" * (size // 2)
    first = await compressor.compressed(body)
    assert gzip.decompress(first) == body
    kept = await compressor.compressed(body) is first
    assert kept == (size < 1_000_000)
    for number in range(20):
        await compressor.compressed(body + b"%d" % number)
    assert await compressor.compressed(body) == first
