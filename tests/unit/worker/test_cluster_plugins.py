"""The plugins of all workers, merged."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import Caution, Violation
from drover_worker.admin.cluster_plugins import merged, plugin_faults

CONFIG = {
    "connector.class": "pkg.Lines",
    "transforms": "a, b",
    "transforms.a.type": "Upper",
    "transforms.b.type": "pkg:Lower",
}


def listing(
    *, connector: str = "1", transforms: tuple[str, ...] = ("Upper", "Lower"), version: str = "1"
) -> pb.ListPluginsResponse:
    of_records = [
        pb.RecordPlugin(kind="transforms", class_name=f"pkg.{n}", aliases=[n], version=version)
        for n in transforms
    ]
    connectors = [pb.Plugin(class_name="pkg.Lines", version=connector)] if connector else []
    return pb.ListPluginsResponse(plugins=connectors, record_plugins=of_records)


def faults(**workers: pb.ListPluginsResponse | None) -> list[Violation]:
    return plugin_faults(CONFIG, merged(workers))


def test_classes_that_all_workers_have_are_no_fault() -> None:
    assert faults(w1=listing(), w2=listing()) == []


def test_each_class_that_a_worker_lacks_is_a_fault_of_its_setting() -> None:
    found = faults(w1=listing(), w2=listing(connector="", transforms=("Upper",)), w3=listing())
    assert [each.field for each in found] == [
        'config["connector.class"]',
        'config["transforms.b.type"]',
    ]
    assert all("is not installed on w2, only on w1, w3" in each.description for each in found)


def test_a_class_that_no_worker_lists_is_not_judged() -> None:
    assert faults(w1=listing(transforms=("Upper",)), w2=listing(transforms=("Upper",))) == []


def test_versions_are_named_with_their_workers() -> None:
    (found,) = faults(w1=listing(), w2=listing(connector="2"))
    assert isinstance(found, Caution)
    assert "1 on w1, 2 on w2" in found.description


def test_a_worker_of_an_earlier_version_lacks_no_transform_as_far_as_is_known() -> None:
    assert faults(w1=listing(), w2=listing(transforms=())) == []


def test_a_worker_that_did_not_respond_is_a_skipped_check() -> None:
    (found,) = faults(w1=listing(), w2=None)
    assert "whether w2 has the classes" in found.description


def test_what_failed_to_load_is_listed_once_with_its_workers() -> None:
    def failing(worker_id: str, *reasons: str) -> pb.ListPluginsResponse:
        found = listing()
        for each in reasons:
            found.problems.add(
                package="acme 1", entry_point="A = a:A", message=each, worker_ids=[worker_id]
            )
        return found

    found = merged(
        {
            "w2": failing("w2", "no module"),
            "w1": failing("w1", "no module", "no symbol"),
            "w3": failing("w3"),
        }
    )
    assert [(each.message, [*each.worker_ids]) for each in found.problems] == [
        ("no module", ["w1", "w2"]),
        ("no symbol", ["w1"]),
    ]


def java_listing(*versions: str) -> pb.ListPluginsResponse:
    return pb.ListPluginsResponse(
        plugins=[
            pb.Plugin(class_name="org.acme.Orders", version=each, java_plugin=f"acme@{each}")
            for each in versions
        ],
        record_plugins=[
            pb.RecordPlugin(
                kind="transforms",
                class_name="org.acme.Mask",
                version=each,
                java_plugin=f"acme@{each}",
            )
            for each in versions
        ],
    )


def java_faults(wanted: str, **workers: pb.ListPluginsResponse) -> list[Violation]:
    config = {
        "connector.class": "java:org.acme.Orders",
        "connector.plugin.version": wanted,
        "transforms": "a",
        "transforms.a.type": "org.acme.Mask",
        "transforms.a.plugin.version": wanted,
    }
    return plugin_faults(config, merged(workers))


def test_versions_of_a_java_class_side_by_side_are_no_fault() -> None:
    both = java_listing("1.0", "1.1")
    assert len(merged({"w1": both, "w2": both}).plugins) == 2
    assert java_faults("", w1=both, w2=both) == []


def test_a_java_class_or_its_version_that_a_worker_lacks_is_a_fault() -> None:
    both, one = java_listing("1.0", "1.1"), java_listing("1.1")
    for other in (one, listing()):
        found = java_faults("1.0", w1=both, w2=other)
        assert [each.field for each in found] == [
            'config["connector.class"]',
            'config["transforms.a.type"]',
        ]
        assert "org.acme.Orders 1.0 is not installed on w2, only on w1" in found[0].description


def test_other_latest_versions_of_a_java_class_are_named() -> None:
    both, one = java_listing("1.0", "1.1"), java_listing("1.0")
    found = java_faults("", w1=both, w2=one)
    assert all(isinstance(each, Caution) for each in found)
    assert "1.1 on w1, 1.0 on w2" in found[0].description
    assert "connector.plugin.version selects one" in found[0].description
    assert java_faults("[1.0,1.1)", w1=both, w2=one) == []
