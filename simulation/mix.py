"""The parameters that a seed draws: the cluster's size, its faults and their rates."""

from dataclasses import dataclass, replace
from random import Random

#: Kinds of faults, with their weights in seeds that include them.
KINDS = {
    "crash": 4,
    "pause": 3,
    "partition": 3,
    "lose engine": 2,
    "stop worker": 2,
    "add worker": 2,
    "restart service": 3,
    "compact": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """One seed's parameters; probabilities apply per message, per write or per step of a plugin."""

    faults_ms: int
    fault_interval_ms: int
    kinds: tuple[str, ...]
    delay_max_ms: int
    late_probability: float
    late_max_ms: int
    loss: float
    duplication: float
    write_ms: int
    write_failure: float
    torn_survives: float
    plugin_ms: int
    plugin_failure: float
    stop_hangs: float
    coordinator_count: int
    shard_count: int
    worker_count: int
    consumer_count: int
    connector_count: int
    operator_count: int
    think_ms: int
    work_ms: int
    session_timeout_ms: int
    kept_records: int
    retention_ms: int
    #: The fraction of workers that are cooperative; the others are eager.
    cooperative: float
    #: Time between two commit markers of another cluster on the same config log; 0 for none.
    stranger_ms: int
    #: Time between two drains of workers, or ends of drains; 0 for none.
    drain_ms: int
    #: The scheduled rebalance delay: how long a lost worker's assignment waits for its return.
    rebalance_delay_ms: int
    #: The fraction of cooperative workers that sign their requests to other workers.
    signing: float
    #: How often a sink commits less than it wrote, and how often it asks for records again.
    rewinds: float
    #: The fraction of batches with a record that becomes a dead letter.
    rejections: float


def draw_mix(dice: Random) -> Mix:
    """Draw the parameters of a seed from ``dice``."""
    quiet = dice.random() < 0.1
    kinds = [kind for kind in KINDS if dice.random() < 0.7]
    return Mix(
        faults_ms=dice.choice((15_000, 25_000, 40_000)),
        fault_interval_ms=dice.choice((600, 1_500, 3_000, 6_000)),
        kinds=() if quiet else tuple(kinds),
        delay_max_ms=dice.choice((3, 10, 40, 120)),
        late_probability=dice.choice((0.0, 0.02, 0.1)),
        late_max_ms=dice.choice((300, 1_500, 5_000)),
        loss=0.0 if quiet else dice.choice((0.0, 0.005, 0.03)),
        duplication=dice.choice((0.0, 0.01, 0.1)),
        write_ms=dice.choice((1, 5, 40, 200)),
        write_failure=0.0 if quiet else dice.choice((0.0, 0.01, 0.1)),
        torn_survives=dice.choice((0.0, 0.5, 1.0)),
        plugin_ms=dice.choice((2, 50, 400)),
        plugin_failure=0.0 if quiet else dice.choice((0.0, 0.02, 0.1)),
        coordinator_count=dice.choice((1, 1, 2, 2, 3)),
        shard_count=dice.choice((1, 2, 4)),
        stop_hangs=0.0 if quiet else dice.choice((0.0, 0.1, 0.4)),
        worker_count=dice.choice((1, 2, 3, 3, 4)),
        consumer_count=dice.choice((0, 0, 3, 6)),
        connector_count=dice.choice((1, 2, 3, 4)),
        operator_count=dice.choice((1, 1, 2)),
        think_ms=dice.choice((300, 1_000, 3_000)),
        work_ms=dice.choice((150, 500, 1_500)),
        session_timeout_ms=dice.choice((2_000, 3_000, 6_000)),
        retention_ms=dice.choice((5_000, 604_800_000)),
        kept_records=dice.choice((20, 100, 1_000)),
        cooperative=dice.choice((0.0, 0.6, 0.9, 1.0, 1.0, 1.0)),
        # Drawn from separate generators: existing seeds keep the values they had before these
        # parameters.
        stranger_ms=Random(str(dice.getstate())).choice((0, 0, 0, 8_000)),
        drain_ms=Random(f"drains {dice.getstate()}").choice((0, 0, 0, 2_000, 5_000)),
        rebalance_delay_ms=Random(f"delay {dice.getstate()}").choice((0, 0, 0, 0, 3_000)),
        signing=Random(f"signing {dice.getstate()}").choice((0.0, 0.0, 0.0, 0.8, 1.0)),
        rewinds=Random(f"rewinds {dice.getstate()}").choice((0.0, 0.1, 0.3)),
        rejections=Random(f"rejections {dice.getstate()}").choice((0.0, 0.1, 0.3)),
    )


def healed(mix: Mix) -> Mix:
    """The same cluster without faults."""
    return replace(
        mix,
        delay_max_ms=5,
        late_probability=0.0,
        loss=0.0,
        duplication=0.0,
        write_ms=min(mix.write_ms, 5),
        write_failure=0.0,
        plugin_ms=min(mix.plugin_ms, 50),
        plugin_failure=0.0,
        stop_hangs=0.0,
        stranger_ms=0,
    )
