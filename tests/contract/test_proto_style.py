"""The style rules of the protos; CONTRIBUTING.md has the reasons."""

import re
from collections import Counter
from collections.abc import Iterable

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from tests.support.descriptors import Commented, descriptor_set, elements

PACKAGE = re.compile(r"drover\.api\.[a-z]+(_[a-z]+)*\.v[1-9][0-9]*")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
CAMEL = re.compile(r"([A-Z][a-z0-9]+)+")
VERBS = {
    *("Get", "List", "Create", "Update", "Put", "Patch", "Delete", "Watch"),  # state
    *("Join", "Sync", "Leave", "Describe", "Find", "Claim", "Commit", "Fetch"),  # groups
    *(
        "Pause",
        "Resume",
        "Stop",
        "Restart",
        "Alter",
        "Reset",
        "Set",
        "Validate",
        "Preview",
        "Plan",
        "Replay",
        "Reload",
    ),  # connectors
    "Submit",
    "Produce",
    "Discard",
    "Drain",
    "Rollback",
}
#: Verbs without a noun: Kafka's name, "everything", and a call whose noun is the forwarded call.
LONE_NAMES = {"Heartbeat", "Flush", "Forward"}
#: Its input is larger than a message may be.
REQUEST_STREAMS = {"ProduceRecords"}
#: Packages whose messages are in no RPC of their own: rules for RPCs do not apply.
MESSAGE_ONLY_PACKAGES = {"drover.api.engine.v1", "drover.api.storage.v1", "drover.api.common.v1"}
#: Maps with the user's own settings.
SETTINGS_MAPS = {
    *("config", "applied_config", "connector_config", "converter_config", "task_config", "set"),
    *("secrets", "settings"),
}

REPEATED = FieldDescriptorProto.LABEL_REPEATED
TYPE_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE
#: Nouns with an irregular plural, and inherent lists.
PLURALS = {"partition_json", "set", "remove"}


def of_kind(*kinds: str) -> list[Commented]:
    return [element for element in elements() if element.kind in kinds]


def last(name: str) -> str:
    return name.rpartition(".")[2]


def none_of(faults: Iterable[str]) -> None:
    found = sorted(faults)
    assert not found, "\n" + "\n".join(found)


def test_there_is_a_contract_to_check() -> None:
    assert len(of_kind("rpc")) > 50
    assert len(of_kind("service")) >= 5


def test_packages_are_versioned_and_match_their_folders() -> None:
    none_of(
        f"{file.name}: package {file.package}"
        for file in descriptor_set().file
        if not PACKAGE.fullmatch(file.package)
        or file.name.rpartition("/")[0] != file.package.replace(".", "/")
    )


def test_every_file_says_what_it_is_for() -> None:
    syntax_path = [12]
    for file in descriptor_set().file:
        syntax = [
            location
            for location in file.source_code_info.location
            if list(location.path) == syntax_path
        ]
        assert syntax, f"{file.name} has no syntax line"
        assert syntax[0].leading_comments.strip(), f"{file.name} has no comment at its top"


def test_other_languages_can_generate_stubs() -> None:
    """protoc-gen-go requires go_package; the names follow the proto package."""
    faults = []
    for file in descriptor_set().file:
        *_, service, version = file.package.split(".")
        wanted = {
            "go_package": f"{file.package.replace('.', '/')};{service.replace('_', '')}{version}",
            "java_package": file.package,
            "java_multiple_files": True,
        }
        faults += [
            f"{file.name}: option {name} must be {value!r}"
            for name, value in wanted.items()
            if getattr(file.options, name) != value
        ]
    none_of(faults)


def test_one_service_a_file_named_after_it() -> None:
    for file in descriptor_set().file:
        if file.package in MESSAGE_ONLY_PACKAGES:
            assert not file.service, file.name
            continue
        assert len(file.service) == 1, file.name
        name = file.service[0].name
        assert name.endswith("Service"), name
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        assert file.name.endswith(f"/{snake}.proto"), f"{name} in {file.name}"


def test_everything_is_documented() -> None:
    none_of(f"{e.kind} {e.name} has no comment" for e in elements() if not e.comment)


def test_comments_are_sentences() -> None:
    none_of(
        f"{e.kind} {e.name}: {e.comment!r} does not end with a full stop"
        for e in elements()
        if e.comment and e.comment.rstrip("`)")[-1:] not in ".:"
    )


@pytest.mark.parametrize("marker", ["TO" + "DO", "FIX" + "ME", "XX" + "X", "TB" + "D"])
def test_no_comment_leaves_work_open(marker: str) -> None:
    none_of(f"{e.kind} {e.name}" for e in elements() if re.search(rf"\b{marker}\b", e.comment))


def test_names() -> None:
    rules = {
        "service": CAMEL,
        "rpc": CAMEL,
        "message": CAMEL,
        "enum": CAMEL,
        "field": LOWER_SNAKE,
        "oneof": LOWER_SNAKE,
        "value": UPPER_SNAKE,
    }
    none_of(f"{e.kind} {e.name}" for e in elements() if not rules[e.kind].fullmatch(last(e.name)))


def test_rpcs_are_verb_and_noun() -> None:
    faults = []
    for rpc in of_kind("rpc"):
        name = last(rpc.name)
        verb, *noun = re.findall(r"[A-Z][a-z0-9]*", name)
        if name not in LONE_NAMES and (verb not in VERBS or not noun):
            faults.append(f"{rpc.name}: is it a known verb and a noun?")
    none_of(faults)


def test_every_rpc_has_a_request_and_a_response_of_its_own() -> None:
    faults = []
    for rpc in of_kind("rpc"):
        package = ".".join(rpc.name.split(".")[:-2])
        base = f".{package}.{last(rpc.name)}"
        if rpc.descriptor.input_type != f"{base}Request":
            faults.append(f"{rpc.name} takes {rpc.descriptor.input_type}")
        if rpc.descriptor.output_type != f"{base}Response":
            faults.append(f"{rpc.name} returns {rpc.descriptor.output_type}")
        if rpc.descriptor.client_streaming != (last(rpc.name) in REQUEST_STREAMS):
            faults.append(f"{rpc.name} streams its requests")
    used = Counter(
        kind
        for rpc in of_kind("rpc")
        for kind in (rpc.descriptor.input_type, rpc.descriptor.output_type)
    )
    faults += [f"{kind} serves {count} RPCs" for kind, count in used.items() if count > 1]
    none_of(faults)


def test_watches_stream_and_have_a_start_or_the_present_state_first() -> None:
    faults = []
    for rpc in of_kind("rpc"):
        watch = last(rpc.name).startswith("Watch")
        snapshot = last(rpc.name) == "GetSnapshot"
        if rpc.descriptor.server_streaming != (watch or snapshot):
            faults.append(f"{rpc.name}: only Watch… and GetSnapshot stream")
        fields = fields_of(rpc.descriptor.output_type)
        if watch and not {"created", "synced"} & fields:
            faults.append(f"{rpc.name}: its client cannot tell that the watch has begun")
        if snapshot and "complete" not in fields:
            faults.append(f"{rpc.name}: a cut would be mistaken for the end")
    none_of(faults)


def fields_of(message: str) -> set[str]:
    prefix = message.removeprefix(".") + "."
    return {
        last(field.name)
        for field in of_kind("field")
        if field.name.startswith(prefix) and "." not in field.name.removeprefix(prefix)
    }


def test_every_rpc_says_whether_it_may_be_repeated_or_that_it_is_not_built() -> None:
    faults = []
    for rpc in of_kind("rpc"):
        comment = " ".join(rpc.comment.split())
        said = re.search(r"[Ss]afe to retry|repeated call", comment) or last(rpc.name).startswith(
            "Watch"
        )
        if not said:
            faults.append(f"{rpc.name}: {comment}")
    none_of(faults)


def test_reasons_named_in_comments_exist() -> None:
    reasons = {
        last(e.name).removeprefix("ERROR_REASON_")
        for e in of_kind("value")
        if ".ErrorReason." in e.name
    }
    codes = {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "ABORTED",
        "UNAVAILABLE",
        "RESOURCE_EXHAUSTED",
        "OUT_OF_RANGE",
        "DEADLINE_EXCEEDED",
        "UNIMPLEMENTED",
        "PERMISSION_DENIED",
    }
    known = reasons | codes | {"UNSPECIFIED"}
    known |= {name for e in of_kind("value") for name in short_names(e)}
    faults = []
    for element in of_kind("rpc", "service"):
        words = re.findall(r"\b[A-Z]{3,}(?:_[A-Z]+)*\b", element.comment)
        faults += [f"{element.name} names {word}, no reason" for word in words if word not in known]
    none_of(faults)


def short_names(value: Commented) -> set[str]:
    """An enum value without its enum's prefix, as comments name it."""
    prefix = screaming(value.name.split(".")[-2]) + "_"
    return {last(value.name).removeprefix(prefix)}


def screaming(camel: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", camel).upper()


def test_enums_begin_with_unspecified_and_prefix_their_values() -> None:
    faults = []
    for enum in of_kind("enum"):
        prefix = screaming(last(enum.name)) + "_"
        first = enum.descriptor.value[0]
        if (first.name, first.number) != (f"{prefix}UNSPECIFIED", 0):
            faults.append(f"{enum.name} begins with {first.name} = {first.number}")
        faults += [
            f"{enum.name}.{value.name} lacks the prefix {prefix}"
            for value in enum.descriptor.value
            if not value.name.startswith(prefix)
        ]
    none_of(faults)


def test_no_empty_no_any_no_struct() -> None:
    banned = {".google.protobuf.Empty", ".google.protobuf.Any", ".google.protobuf.Struct"}
    none_of(
        f"{e.name} is a {e.descriptor.type_name}"
        for e in of_kind("field")
        if e.descriptor.type_name in banned
    )
    none_of(
        f"{file.name} imports {name}"
        for file in descriptor_set().file
        for name in file.dependency
        if name.endswith(("empty.proto", "any.proto", "struct.proto"))
    )


def test_maps_hold_settings_only() -> None:
    faults = []
    for message in of_kind("message"):
        entries = {
            nested.name: nested
            for nested in message.descriptor.nested_type
            if nested.options.map_entry
        }
        for field in message.descriptor.field:
            entry = entries.get(field.type_name.rpartition(".")[2])
            if entry is None:
                continue
            text = all(part.type == FieldDescriptorProto.TYPE_STRING for part in entry.field)
            if field.name not in SETTINGS_MAPS or not text:
                faults.append(f"{message.name}.{field.name}")
    none_of(faults)


def test_repeated_fields_are_plural_and_scalars_singular() -> None:
    faults = []
    for field in of_kind("field"):
        name = last(field.name)
        repeated = field.descriptor.label == REPEATED
        is_map = repeated and name in SETTINGS_MAPS
        if repeated and not is_map and not name.endswith("s") and name not in PLURALS:
            faults.append(f"{field.name} is repeated but not plural")
    none_of(faults)


def test_times_and_spans_have_their_types() -> None:
    faults = []
    for field in of_kind("field"):
        name, kind = last(field.name), field.descriptor.type_name
        storage = field.name.startswith(("drover.api.storage.", "drover.api.engine."))
        if name.endswith("_time") != (kind == ".google.protobuf.Timestamp"):
            faults.append(f"{field.name}: Timestamp and …_time go together")
        if name.endswith(("_timeout", "_delay", "_age")) and kind != ".google.protobuf.Duration":
            faults.append(f"{field.name}: a span is a Duration")
        if name.endswith(("_ms", "_seconds", "_s")) and not storage:
            faults.append(f"{field.name}: in RPCs a span is a Duration")
    none_of(faults)


def test_ids_are_strings() -> None:
    faults = []
    for field in of_kind("field"):
        numeric = field.descriptor.type != FieldDescriptorProto.TYPE_STRING
        internal = field.name.startswith("drover.api.engine.")
        if last(field.name).endswith("_id") and numeric and not internal:
            faults.append(field.name)
    none_of(faults)


def test_lists_have_pages() -> None:
    faults = []
    for rpc in of_kind("rpc"):
        answer = fields_of(rpc.descriptor.output_type)
        if "next_page_token" in answer and "page_token" not in fields_of(rpc.descriptor.input_type):
            faults.append(f"{rpc.name} answers with a page but cannot be asked for the next")
    none_of(faults)


def test_writes_can_be_told_apart() -> None:
    """Writes that create or replace take a request id."""
    stores = ("ConfigStoreService.Put", "ConfigStoreService.Delete", "ConnectService.Create")
    more = ("ConnectService.Put", "ConnectService.Delete", "WorkerService.Submit")
    none_of(
        rpc.name
        for rpc in of_kind("rpc")
        if ".".join(rpc.name.split(".")[-2:]).startswith(stores + more)
        and "request_id" not in fields_of(rpc.descriptor.input_type)
    )


def test_reasons_have_room_in_error_info() -> None:
    for value in of_kind("value"):
        if ".ErrorReason." in value.name:
            assert len(last(value.name).removeprefix("ERROR_REASON_")) <= 63
