"""Local times of tables as instants: the hour that a zone repeats has each local time twice."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

_RESOLUTION = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """The times of a column without a zone; ``zone`` is that of its database or application."""

    zone: tzinfo

    def stored(self, moment: datetime) -> datetime:
        """The local time of an instant."""
        return moment.astimezone(self.zone).replace(tzinfo=None)

    def instant(self, stored: datetime, now: datetime) -> datetime:
        """The last instant, but not after ``now``, with a local time."""
        first, second = self._instants(stored)
        return second if second <= now else first

    def comes_again(self, stored: datetime, now: datetime) -> bool:
        """Whether a local time has passed once before ``now``, and will pass again."""
        first, second = self._instants(stored)
        return first <= now < second

    def is_repeated(self, stored: datetime) -> bool:
        """Whether two instants have a local time."""
        first, second = self._instants(stored)
        return first < second

    def repetition(self, position: datetime, now: datetime) -> datetime | None:
        """The instant at which the local times before ``position`` began again, if that happened
        between the two: then rows may have got local times that were read already.
        """
        first, second = self._instants(self.stored(position))
        if position != first or first == second:
            return None
        # the clock is put back between the two instants
        low, high = first, second
        before = first.astimezone(self.zone).utcoffset()
        while high - low > _RESOLUTION:
            middle = low + (high - low) / 2
            if middle.astimezone(self.zone).utcoffset() == before:
                low = middle
            else:
                high = middle
        return high if high <= now else None

    def _instants(self, stored: datetime) -> tuple[datetime, datetime]:
        """The first and the last instant with a local time; equal unless it is repeated."""
        local = stored.replace(tzinfo=self.zone)
        first, second = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        return (first, second) if first < second else (first, first)
