"""The rules of one group in plain sets: the reference for the group machine.

It shares no code and no structure with the machine: deadlines instead of timers, stored or unstored
state instead of records and replay, no lazy session checks. A step's responses are sent only if its
write was stored; otherwise all its callers get ``STORAGE_UNAVAILABLE``. Watches are not modelled.

Responses are plain tuples, as ``("joined", ...)`` or ``("error", reason)``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from tests.support.naive_people import Answer, Log, Person, Stored

P = ParamSpec("P")

NEW_MS = 300_000
RETRY_EMPTY_MS = 1_000
STORAGE: Answer = ("error", "STORAGE_UNAVAILABLE")
UNKNOWN: Answer = ("error", "UNKNOWN_MEMBER_ID")
FENCED: Answer = ("error", "FENCED_INSTANCE_ID")


def step(method: "Callable[Concatenate[NaiveGroup, P], None]") -> "Callable[..., None]":
    """Send the step's responses at its end, if its write was stored."""

    @wraps(method)
    def told(self: "NaiveGroup", *args: P.args, **options: P.kwargs) -> None:
        method(self, *args, **options)
        self.end_step()

    return told


class NaiveGroup:
    """Takes events, computes the responses, and gives the operator's view of the group."""

    def __init__(self, *, delay_ms: int, max_size: int, session_min_ms: int) -> None:
        self.delay_ms = delay_ms
        self.max_size = max_size
        self.session_min_ms = session_min_ms
        self.now = 0
        self.log: Log | None = None
        self.write_fails = False
        self.answers: dict[str, Answer] = {}
        #: two deadlines coincided, and their order may matter
        self.tied = False
        self._forget_all()

    def _forget_all(self) -> None:
        self.state = "DEAD"
        self.people: dict[str, Person] = {}
        self.handed_out: dict[str, int] = {}
        self.must_sync: set[str] = set()
        self.sync_due = 0
        self.join_due = 0
        #: the initial delay: its length, the remaining extension, whether a member joined
        self.delay: tuple[int, int, bool] | None = None
        self.forget_at: int | None = None
        self._said: dict[str, Answer] = {}
        self._stored = True

    # --- what is seen ------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """The group as an operator sees it."""
        if self.state == "DEAD" or self.log is None:
            return {"state": "DEAD"}
        stable = self.state == "STABLE"
        protocol = self.log.protocol
        return {
            "state": self.state,
            "generation": self.log.generation,
            "leader": self.log.leader,
            "members": {
                name: (
                    each.word.instance,
                    each.word.session_ms,
                    each.word.rebalance_ms,
                    dict(each.word.offers).get(protocol, b"") if stable else b"",
                    each.word.assignment if stable else b"",
                )
                for name, each in self.people.items()
            },
        }

    # --- one step: its responses wait for its write -------------------------------------------

    def _say(self, call: str | None, answer: Answer) -> None:
        if call is not None:
            self._said[call] = answer

    def _write(self, log: Log | None) -> bool:
        """Store ``log``; returns False if the disk fails, which fails all responses of the step."""
        if self.write_fails:
            self.write_fails = False
            self._stored = False
            return False
        self.log = log
        return True

    def end_step(self) -> None:
        """Send all responses of the step."""
        for call, answer in self._said.items():
            assert call not in self.answers
            self.answers[call] = answer if self._stored else STORAGE
        self._said, self._stored = {}, True

    # --- questions ---------------------------------------------------------------------------

    def _at(self, instance: str | None) -> Person | None:
        return next((p for p in self.people.values() if p.word.instance == instance), None)

    def _common(self) -> set[str]:
        spoken = [{name for name, _ in p.word.offers} for p in self.people.values()]
        return set.intersection(*spoken) if spoken else set()

    def _elected(self) -> str:
        common = self._common()
        votes: dict[str, int] = {}
        for person in self.people.values():
            favourite = next(name for name, _ in person.word.offers if name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name])  # the first of the most frequent

    def _patience(self) -> int:
        return max((p.word.rebalance_ms for p in self.people.values()), default=0)

    def _refusal(self, name: str, instance: str | None, generation: int | None) -> Answer | None:
        if instance is not None:
            holder = self._at(instance)
            if holder is None:
                return UNKNOWN
            if holder.name != name:
                return FENCED
        if name not in self.people:
            return UNKNOWN
        assert self.log is not None
        if generation is not None and generation != self.log.generation:
            return ("error", "ILLEGAL_GENERATION")
        return None

    def _has_room_for(self, person: Person | None) -> bool:
        if self.state in ("DEAD", "EMPTY"):
            return True
        if self.state != "PREPARING_REBALANCE":
            return person is not None or len(self.people) < self.max_size
        joined = {p.name for p in self.people.values() if p.joining}
        if person is not None:
            return person.name in joined or len(joined) < self.max_size
        may_come_back = {p.name for p in self.people.values() if p.word.instance is not None}
        return len(joined | may_come_back) < self.max_size

    def _joined_answer(self, person: Person, log: Log) -> Answer:
        leads = person.name == log.leader
        members = tuple(
            (p.name, dict(p.word.offers)[log.protocol], p.word.instance)
            for p in self.people.values()
        )
        told = members if leads else ()
        return ("joined", log.generation, person.name, log.leader, log.protocol, told, False)

    # --- calls -------------------------------------------------------------------------------

    @step
    def join(self, call: str, name: str, new_name: str, word: Stored, patience_ms: int) -> None:
        """A join; without a ``name`` it is a first one, which may get ``new_name``."""
        until = self.now + patience_ms
        if self.state == "DEAD":
            if name:
                return self._say(call, UNKNOWN)
            self.state = "EMPTY"
        if name and word.instance is not None:
            refusal = self._refusal(name, word.instance, None)
            if refusal is not None:
                return self._say(call, refusal)
        person = self.people.get(name) if name else None
        if not name and word.instance is not None:
            person = self._at(word.instance)
        if not self._has_room_for(person):
            self._say(call, ("error", "GROUP_MAX_SIZE_REACHED"))
            if person is not None:
                return self._lose({person.name})
            if self.handed_out.pop(name, None) is not None:
                self._id_gone()
            return None
        if self.people and not self._common() & {offer for offer, _ in word.offers}:
            return self._say(call, ("error", "INCONSISTENT_GROUP_PROTOCOL"))
        if not name and word.instance is not None:
            return self._join_static(call, person, new_name, word, until)
        if not name:
            return self._hand_out(call, new_name, word)
        if person is not None:
            return self._join_again(call, person, word, until)
        if name not in self.handed_out:
            return self._say(call, UNKNOWN)
        del self.handed_out[name]
        self._add(name, word)
        self._park(call, self.people[name], until, None)
        return None

    def _hand_out(self, call: str, new_name: str, word: Stored) -> None:
        if len(self.handed_out) >= self.max_size:
            return self._say(call, ("error", "GROUP_MAX_SIZE_REACHED"))
        self._say(call, ("id", new_name))
        if self.log is None and not self._write(Log()):
            return self._forget_group()
        self.handed_out[new_name] = self.now + word.session_ms
        return None

    def _add(self, name: str, word: Stored) -> None:
        if self.delay is not None:
            self.delay = (*self.delay[:2], True)
        self.people[name] = Person(name, word, 0, new_until=self.now + NEW_MS)

    def _join_static(
        self, call: str, before: Person | None, new_name: str, word: Stored, until: int
    ) -> None:
        if before is None:
            self._add(new_name, word)
            person = self.people[new_name]
        else:
            for parked in (before.joining, before.syncing):
                self._say(parked, FENCED)
            if before.waits:
                before.joining = before.syncing = None
                self._hear(before)
                if self.state == "COMPLETING_REBALANCE":
                    self.must_sync.add(before.name)
            person = Person(
                new_name,
                replace(word, assignment=before.word.assignment),
                0,
                new_until=None if before.new_until is None else self.now + NEW_MS,
            )
            self._exchange(before, person)
            if self.state == "STABLE" and self.log and self._elected() == self.log.protocol:
                self._hear(person)
                log = self._renamed(person, before.name, person.word)
                answer = self._joined_answer(person, log)
                self._say(call, (*answer[:-1], person.name == log.leader))
                if not self._write(log):
                    self._exchange(person, before)
                return
        seat = (person, before)
        wrote = self._park(call, person, until, seat)
        if wrote:
            return
        if self.log is None:
            if not self._write(Log()):
                self._say(call, STORAGE)
                self._forget_group()
            return
        stored = [n for n, each in self.log.people.items() if each.instance == word.instance]
        if stored and not self._write(self._renamed(person, stored[0], None)):
            self._say(call, STORAGE)
            self._give_back(person, before)

    def _exchange(self, old: Person, new: Person) -> None:
        self.people = {
            (new if each is old else each).name: (new if each is old else each)
            for each in self.people.values()
        }
        if old.name in self.must_sync:
            self.must_sync = self.must_sync - {old.name} | {new.name}

    def _renamed(self, person: Person, old_name: str, word: Stored | None) -> Log:
        assert self.log is not None
        return replace(
            self.log,
            leader=person.name if self.log.leader == old_name else self.log.leader,
            people={
                (person.name if name == old_name else name): (
                    word if word is not None and name == old_name else each
                )
                for name, each in self.log.people.items()
            },
        )

    def _give_back(self, person: Person, before: Person | None) -> None:
        person.joining = None
        if before is None:
            del self.people[person.name]
        else:
            self._exchange(person, before)

    def _join_again(self, call: str, person: Person, word: Stored, until: int) -> None:
        assert self.log is not None
        same = person.word.offers == word.offers
        if same and (
            self.state == "COMPLETING_REBALANCE"
            or (self.state == "STABLE" and person.name != self.log.leader)
        ):
            self._say(call, self._joined_answer(person, self.log))
            return self._hear(person)
        self._say(person.joining, ("retry", person.name))
        person.word = replace(
            word, instance=person.word.instance, assignment=person.word.assignment
        )
        self._park(call, person, until, None)
        return None

    def _park(
        self, call: str, person: Person, until: int, seat: tuple[Person, Person | None] | None
    ) -> bool:
        """Park a join; returns whether it completed the next generation."""
        if self.state != "PREPARING_REBALANCE":
            self._prepare()
        person.joining, person.join_until = call, until
        return self._complete_if_all_are_there(seat)

    @step
    def sync(
        self,
        call: str,
        name: str,
        generation: int,
        instance: str | None,
        assignments: dict[str, bytes],
    ) -> None:
        """A sync; the assignments of a follower are ignored."""
        refusal = self._refusal(name, instance, generation)
        if refusal is not None:
            return self._say(call, refusal)
        person = self.people[name]
        assert self.log is not None
        if self.state == "PREPARING_REBALANCE":
            self._say(call, ("rebalance",))
            return self._hear(person)
        self.must_sync.discard(name)
        if self.state == "STABLE":
            self._say(call, ("assigned", person.word.assignment))
            return self._hear(person)
        self._say(person.syncing, ("error", "COORDINATOR_NOT_AVAILABLE"))
        person.syncing = call
        if name != self.log.leader:
            return None
        waiting = [each for each in self.people.values() if each.syncing]
        for each in waiting:
            self._say(each.syncing, ("assigned", assignments.get(each.name, b"")))
        people = {
            each.name: replace(each.word, assignment=assignments.get(each.name, b""))
            for each in self.people.values()
        }
        stored = self._write(replace(self.log, assigned=True, people=people))
        for each in waiting:
            each.syncing = None
            self._hear(each)
        if not stored:
            self._prepare()
            return None
        self.state = "STABLE"
        for each in self.people.values():
            each.word = people[each.name]
        return None

    @step
    def heartbeat(self, call: str, name: str, generation: int, instance: str | None) -> None:
        """A heartbeat."""
        refusal = self._refusal(name, instance, generation)
        if refusal is None:
            self._hear(self.people[name])
        self._say(call, refusal or ("alive", self.state == "PREPARING_REBALANCE"))

    @step
    def leave(self, call: str, leavers: list[tuple[str, str | None]]) -> None:
        """A leave of members, each by member id, by instance id, or by both."""
        results = []
        gone: set[str] = set()
        freed = False
        for name, instance in leavers:
            holder = self._at(instance) if instance is not None else self.people.get(name)
            if instance is None and name in self.handed_out:
                del self.handed_out[name]
                freed = True
                results.append((name, "LEFT"))
            elif holder is None:
                results.append((name, "UNKNOWN_MEMBER_ID"))
            elif name and holder.name != name:
                results.append((name, "FENCED_INSTANCE_ID"))
            elif holder.name in gone:
                results.append((holder.name, "UNKNOWN_MEMBER_ID"))
            else:
                gone.add(holder.name)
                results.append((holder.name, "LEFT"))
        self._say(call, ("left", tuple(results)))
        if gone:
            self._lose(gone)
        elif freed:
            self._id_gone()

    @step
    def abandon(self, call: str) -> None:
        """The caller of a parked call has cancelled it."""
        for person in self.people.values():
            if person.joining == call:
                self._say(call, ("retry", person.name))
                person.joining = None
                self._hear(person)
            elif person.syncing == call:
                person.syncing = None
                self.must_sync.add(person.name)
                self._hear(person)

    # --- consequences ------------------------------------------------------------------------

    def _hear(self, person: Person) -> None:
        if not person.waits:
            ends = self.now + person.word.session_ms
            person.alive_until = ends if person.new_until is None else min(ends, person.new_until)

    def _lose(self, names: set[str]) -> None:
        """Remove members; the others rebalance, or need not wait for them."""
        for name in sorted(names):
            person = self.people.pop(name)
            for parked in (person.joining, person.syncing):
                self._say(parked, UNKNOWN)
        self.must_sync -= names
        if self.state in ("STABLE", "COMPLETING_REBALANCE"):
            self._prepare()
        self._complete_if_all_are_there(None)

    def _id_gone(self) -> None:
        """A pending member id has expired."""
        never_used = self.log is not None and self.log.generation == 0 and not self.people
        if self.state == "EMPTY" and never_used:
            if not self.handed_out and self._write(None):
                self._forget_group()
        else:
            self._complete_if_all_are_there(None)

    def _forget_group(self) -> None:
        said, stored = self._said, self._stored
        self._forget_all()
        self._said, self._stored = said, stored

    def _prepare(self) -> None:
        if self.state == "EMPTY":
            self.delay = (self.delay_ms, max(self._patience() - self.delay_ms, 0), False)
            self.join_due = self.now + self.delay_ms
        else:
            self.join_due = self.now + self._patience()
        for person in self.people.values():
            if person.syncing is not None:
                self._say(person.syncing, ("rebalance",))
                person.syncing = None
                self._hear(person)
        self.must_sync = set()
        self.state = "PREPARING_REBALANCE"

    def _complete_if_all_are_there(self, seat: tuple[Person, Person | None] | None) -> bool:
        missing = self.handed_out or any(p.joining is None for p in self.people.values())
        if self.state != "PREPARING_REBALANCE" or self.delay is not None or missing:
            return False
        self._complete(seat)
        return True

    def _complete(self, seat: tuple[Person, Person | None] | None) -> None:
        """The rebalance ends with the joined members, and with static members that may return."""
        self.delay = None
        joined = [p for p in self.people.values() if p.joining is not None]
        absent = [p for p in self.people.values() if p.joining is None]
        static = [p.name for p in absent if p.word.instance is not None]
        staying = set(static[: max(self.max_size - len(joined), 0)])
        for person in absent:
            if person.name not in staying:
                del self.people[person.name]
        if self.people and not joined:
            self.join_due = self.now + self._patience()
            return
        log = self._next_generation(joined)
        for person in joined:
            self._say(person.joining, self._joined_answer(person, log))
        stored = self._write(log)
        if not stored and seat is not None:
            self._give_back(*seat)
        for person in joined:
            person.joining = None
            if stored:
                person.new_until = None
            if person.name in self.people:
                self._hear(person)
        if not stored:
            self.join_due = self.now + (self._patience() or RETRY_EMPTY_MS)
        elif not joined:
            self.state = "EMPTY"
        else:
            self.state = "COMPLETING_REBALANCE"
            self.must_sync = {person.name for person in joined}
            self.sync_due = self.now + self._patience()
            for person in self.people.values():
                person.word = replace(person.word, assignment=b"")

    def _next_generation(self, joined: list[Person]) -> Log:
        assert self.log is not None
        generation = self.log.generation + 1
        if not joined:
            return Log(generation)
        leader = self.log.people.get(self.log.leader)
        heir = self.people.get(self.log.leader)
        if leader is not None and leader.instance is not None:
            heir = self._at(leader.instance) or heir
        if heir not in joined:
            heir = joined[0]
        assert heir is not None
        people = {p.name: replace(p.word, assignment=b"") for p in self.people.values()}
        return Log(generation, False, heir.name, self._elected(), people)

    # --- time, crashes -----------------------------------------------------------------------

    def advance(self, duration_ms: int) -> None:
        """Advance the time, and process all deadlines."""
        target = self.now + duration_ms
        while True:
            due = self._due()
            moment = min((at for at, _, _ in due), default=target + 1)
            if moment > target:
                break
            together = [(kind, name) for at, kind, name in due if at == moment]
            self.tied = self.tied or len({kind for kind, _ in together}) > 1
            self.now = max(self.now, moment)
            self._fall_due(*together[0])
        self.now = target

    def _due(self) -> list[tuple[int, str, str]]:
        due = [(at, "id", name) for name, at in self.handed_out.items()]
        for person in self.people.values():
            if not person.waits:
                due.append((person.alive_until, "session", person.name))
            elif person.new_until is not None:
                due.append((person.new_until, "session", person.name))
            if person.joining is not None:
                due.append((person.join_until, "retry", person.name))
        if self.state == "PREPARING_REBALANCE":
            due.append((self.join_due, "join", ""))
        if self.must_sync:
            due.append((self.sync_due, "sync", ""))
        if self.forget_at is not None:
            due.append((self.forget_at, "forget", ""))
        return due

    @step
    def _fall_due(self, kind: str, name: str) -> None:
        if kind == "id":
            del self.handed_out[name]
            self._id_gone()
        elif kind == "session":
            self._lose({name})
        elif kind == "retry":
            person = self.people[name]
            self._say(person.joining, ("retry", name))
            person.joining = None
            self._hear(person)
        elif kind == "sync":
            self._lose(set(self.must_sync))
        elif kind == "forget":
            self.forget_at = None
            self._id_gone()
        elif self.delay is not None and self.delay[1] and self.delay[2]:
            round_ms, left_ms, _ = self.delay
            self.delay = (min(round_ms, left_ms), max(left_ms - round_ms, 0), False)
            self.join_due = self.now + self.delay[0]
        else:
            self._complete(None)

    def restart(self) -> None:
        """The coordinator crashes and loads its log; unstored state is lost."""
        log = self.log
        self._forget_all()
        if log is None:
            return
        self.people = {
            name: Person(name, word, self.now + word.session_ms)
            for name, word in log.people.items()
        }
        if not self.people:
            self.state = "EMPTY"
            if log.generation == 0:
                self.forget_at = self.now + self.session_min_ms
        elif log.assigned:
            self.state = "STABLE"
        else:
            self.state = "COMPLETING_REBALANCE"
            self._prepare()
