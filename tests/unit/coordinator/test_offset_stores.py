"""One suite for the stores of claims and offsets that need no broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drover.dataplane.store import EmbeddedStore
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets
from drover_coordinator.offset_store import OffsetStore
from tests.support.folded_claims import FoldedOffsets
from tests.support.offset_store_suite import OffsetStoreSuite


class TestEmbeddedOffsets(OffsetStoreSuite):
    @pytest.fixture
    async def offsets(self, tmp_path: Path) -> AsyncIterator[OffsetStore]:
        store = await asyncio.to_thread(EmbeddedStore, tmp_path / "data.db")
        front = EmbeddedOffsets(store)
        yield front
        await front.close()


class TestFoldedClaims(OffsetStoreSuite):
    """The state that the Kafka store folds, without Kafka."""

    @pytest.fixture
    def offsets(self) -> OffsetStore:
        return FoldedOffsets()
