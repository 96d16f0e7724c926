"""One simulated lifetime of a group: first anything may break, then everything has to heal."""

from drover.machine import Complete
from drover.model.group import GroupDescription, GroupState
from services.coordinator.core.events import DescribeGroup
from services.coordinator.core.settings import GroupSettings
from tests.simulation.coordinator import SimulatedCoordinator
from tests.simulation.member import GROUP, ITEMS, SimulatedMember
from tests.simulation.world import World

FAULTS_MS = 180_000
HEALING_MS = 240_000
MEMBERS_MAX = 8


class SimulationError(AssertionError):
    """A rule was broken; the message has the seed, the story and how to replay it."""


class GroupSimulation:
    """Members come, crash, pause and leave; the coordinator crashes; the disk refuses appends."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.coordinator = SimulatedCoordinator(
            self.world, GroupSettings(initial_rebalance_delay_ms=500)
        )
        self.members: list[SimulatedMember] = []
        self._member_count = 0
        self._logged = 0
        self._last_generation = 0

    def run(self) -> None:
        """Run both phases.

        Raises:
            SimulationError: A rule was broken.
        """
        try:
            self._add_member()
            self._break_something_later()
            self.world.run(self.world.now_ms + FAULTS_MS, self.check)
            self.world.faulty = False
            if not self.coordinator.alive:
                self.coordinator.start()
            if not any(member.alive for member in self.members):
                self._add_member()
            self.world.tell("faults end")
            healed = self.world.run(self.world.now_ms + HEALING_MS, self.check, self._is_healed)
            assert healed, f"not healed after {HEALING_MS} ms: {self._describe()}"
        except AssertionError as error:
            raise SimulationError(
                f"seed {self.seed}: {error}\n{self.world.story()}\n"
                f"replay with: make simulate SEED={self.seed}"
            ) from error

    # --- faults ------------------------------------------------------------------------------

    def _break_something_later(self) -> None:
        self.world.after(self.world.random.randint(100, 6_000), self._break_something)

    def _break_something(self) -> None:
        if not self.world.faulty:
            return
        dice = self.world.random
        alive = [member for member in self.members if member.alive]
        kind = dice.choice(("add", "add", "crash", "pause", "restart coordinator"))
        if kind == "add" and len(alive) < MEMBERS_MAX:
            self._add_member()
        elif kind == "crash" and len(alive) > 1:
            dice.choice(alive).crash()
        elif kind == "pause" and alive:
            dice.choice(alive).pause(dice.choice((500, 5_000, 60_000)))
        elif kind == "restart coordinator" and self.coordinator.alive:
            self.coordinator.crash()
            self.world.after(dice.choice((10, 1_000, 15_000)), self._restart_coordinator)
        self._break_something_later()

    def _restart_coordinator(self) -> None:
        if not self.coordinator.alive:
            self.coordinator.start()

    def _add_member(self) -> None:
        self._member_count += 1
        name = f"worker{self._member_count}"
        self.world.tell(f"{name} starts")
        self.members.append(SimulatedMember(self.world, self.coordinator, name))

    # --- rules -------------------------------------------------------------------------------

    def check(self) -> None:
        """What has to hold after every step."""
        self.coordinator.machine.validate()
        for record in self.coordinator.log[self._logged :]:
            # a group may be forgotten only while it has given out no generation
            generation = record.metadata.generation if record.metadata else 0
            assert generation >= self._last_generation, "a generation went back"
            self._last_generation = generation
        self._logged = len(self.coordinator.log)
        owners: dict[tuple[int, str], str] = {}
        for member in self.members:
            for item in member.owned or ():
                other = owners.setdefault((member.generation, item), member.name)
                assert other == member.name, (
                    f"{other} and {member.name} both own {item} in generation {member.generation}"
                )

    def _is_healed(self) -> bool:
        alive = [member for member in self.members if member.alive]
        loads = [len(member.owned) for member in alive if member.owned is not None]
        return (
            len(loads) == len(alive)
            and len({member.generation for member in alive}) == 1
            and sum(loads) == len(ITEMS)
            and max(loads) - min(loads) <= 1
            and self._describe().state is GroupState.STABLE
        )

    def _describe(self) -> GroupDescription:
        event = DescribeGroup("describe", GROUP)
        (instruction,) = self.coordinator.machine.handle(event, self.world.now_ms).instructions
        assert isinstance(instruction, Complete)
        assert isinstance(instruction.response, GroupDescription)
        return instruction.response
