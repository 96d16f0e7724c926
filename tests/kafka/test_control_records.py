"""Records in the control topic that Drover has not written."""

from pathlib import Path

from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import produce
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_services import COORDINATOR, Clients, DroverServices, control_topic
from tests.support.waiting import wait_until


def test_foreign_records_in_the_control_topic_do_not_end_groups(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}one")
    drover = DroverServices(kafka.bootstrap, options, tmp_path, services=(COORDINATOR,))

    async def find(clients: Clients) -> str:
        return await clients.coordinator.find_coordinator(options.group_id, timeout_s=30)

    try:
        drover.start()
        drover.call(find)
        # some for each partition
        produce(kafka.bootstrap, control_topic(options), [(b"x%d" % n, b"y") for n in range(20)])
        drover.processes[COORDINATOR].kill()
        drover.start_one(COORDINATOR)
        wait_until(lambda: drover.call(find))
        told = [
            (event["partition"], event["offset"])
            for event in drover.events(COORDINATOR)
            if event.get("topic") == control_topic(options) and "offset" in event
        ]
        assert len(told) == len(set(told)), "each is told once"
        assert not [each for each in drover.events(COORDINATOR) if each["level"] == "error"]
    finally:
        drover.stop()
