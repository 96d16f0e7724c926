"""The coordinator's settings, read from DROVER_<FIELD> in the environment."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from drover.model.times import DAY_MS
from drover.rpc.settings import (
    AdvertisedAddress,
    ListenAddress,
    PositiveMs,
    ServiceSettings,
    TargetAddresses,
    split_addresses,
)
from drover_coordinator.core.groups.settings import GroupSettings

#: Switches a limit off.
UNLIMITED = -1


def _limit(value: int) -> int:
    if value == 0 or value < UNLIMITED:
        raise ValueError("must be at least 1, or -1 for no limit")
    return value


#: A limit that -1 switches off.
Limit = Annotated[int, Field(le=2**53), AfterValidator(_limit)]

RetentionMs = Annotated[int, Field(ge=1, le=2**53)]


class CoordinatorSettings(ServiceSettings):
    """The coordinator's settings.

    FindCoordinator returns ``coordinator_advertised``, by default the bound address.
    ``coordinators`` lists every coordinator that shares the directory, including this one; it is
    empty for a single coordinator. A coordinator that does not renew its leases for
    ``coordinator_lease_ms`` loses its groups to the others. ``group_shards`` is fixed at the first
    start of a directory. Embedded topics delete records older than ``topic_retention_ms``, and the
    oldest records of a topic partition larger than ``topic_retention_bytes`` (before compression);
    -1 disables either limit. ``GroupSettings`` documents the other settings.
    """

    coordinator_listen: ListenAddress = "127.0.0.1:7401"
    coordinator_advertised: AdvertisedAddress | None = None
    coordinators: TargetAddresses = ""
    coordinator_lease_ms: Annotated[int, Field(ge=300, le=60_000)] = 3_000
    group_shards: Annotated[int, Field(ge=1, le=256)] = 4
    initial_rebalance_delay_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 3_000
    disconnect_grace_ms: PositiveMs = 1_000
    group_min_session_timeout_ms: PositiveMs = 6_000
    group_max_session_timeout_ms: PositiveMs = 1_800_000
    group_max_size: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    offsets_retention_ms: RetentionMs = 7 * DAY_MS
    offsets_retention_check_ms: PositiveMs = 600_000
    topic_retention_ms: Limit = 7 * DAY_MS
    topic_retention_bytes: Limit = UNLIMITED

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ValueError(
                "DROVER_GROUP_MIN_SESSION_TIMEOUT_MS must not be above "
                "DROVER_GROUP_MAX_SESSION_TIMEOUT_MS"
            )
        return self

    @model_validator(mode="after")
    def _check_listed(self) -> Self:
        own = self.coordinator_advertised or self.coordinator_listen
        if self.coordinators and own not in split_addresses(self.coordinators):
            raise ValueError(
                f"DROVER_COORDINATORS must include this coordinator's own address, {own}: it is"
                f" {self.coordinators!r} (DROVER_COORDINATOR_ADVERTISED sets the address)"
            )
        return self

    def advertised(self) -> Mapping[str, str]:
        """The address that FindCoordinator returns; empty for a single coordinator without one."""
        if self.coordinator_advertised is not None:
            return {"DROVER_COORDINATOR_ADVERTISED": self.coordinator_advertised}
        if self.coordinators:
            return {"DROVER_COORDINATOR_LISTEN": self.coordinator_listen}
        return {}

    def groups(self) -> GroupSettings:
        """The settings of the group machine."""
        return GroupSettings(
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            disconnect_grace_ms=self.disconnect_grace_ms,
            group_max_size=self.group_max_size,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_ms=self.offsets_retention_check_ms,
        )
