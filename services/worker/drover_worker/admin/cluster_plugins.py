"""The plugins of all workers, and plugins that some workers lack."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.codec.connect import encode_connector_type
from drover.config.class_registry import version_setting
from drover.errors import Caution, DroverError, SkippedCheck, Violation
from drover.java_plugins.values import VERSION_MARK
from drover.java_plugins.versions import Version, VersionRange, VersionRangeError
from drover_worker.admin.every_worker import EveryWorker
from drover_worker.admin.forwarding import ForwardedMethod
from drover_worker.admin.views import plugin_view, record_plugin_view
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.herder_loop import HerderLoop

#: How long a listing without a missing plugin is cached within a generation; new plugins come with
#: new workers.
_CACHED_S = 30.0

CONNECTOR_CLASS = "connector.class"
CONVERTER, HEADER_CONVERTER = "converter", "header_converter"
CONNECTOR_KINDS = ("source", "sink")
RECORD_KINDS = (CONVERTER, HEADER_CONVERTER, "transforms", "predicates")
_JAVA_PREFIX = "java:"
LIST = ForwardedMethod("ListPlugins", pb.ListPluginsRequest, pb.ListPluginsResponse)


class ClusterPlugins:
    """Lists the plugins of this worker's engine and, through the leader, of all other workers."""

    def __init__(
        self,
        *,
        worker_id: str,
        loop: HerderLoop,
        engine: EngineLink,
        every_worker: EveryWorker,
    ) -> None:
        self._worker_id = worker_id
        self._loop = loop
        self._engine = engine
        self._every_worker = every_worker
        self._cached: pb.ListPluginsResponse | None = None
        self._cached_generation = -1
        self._cached_until_s = 0.0

    async def list_all(self, hop_count: int = 0) -> pb.ListPluginsResponse:
        """The plugins of all reachable workers, each version of a plugin once.

        Args:
            hop_count: How many workers forwarded the call; at the maximum only this worker's
                plugins are listed.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, on this worker.
        """
        own = await self._own()
        return await self._every_worker.answer(
            LIST, pb.ListPluginsRequest(), own, merged, hop_count=hop_count
        )

    async def faults(self, config: Mapping[str, str]) -> list[Violation]:
        """A violation for each class of a config that some workers have and others lack, a caution
        for each class of which workers have different versions, and skipped checks for workers that
        do not answer.
        """
        try:
            return plugin_faults(config, await self._listing())
        except DroverError as error:
            text = f"whether all workers have the classes was not checked: {error.message}"
            return [SkippedCheck(_field(CONNECTOR_CLASS), text)]

    async def _listing(self) -> pb.ListPluginsResponse:
        """The cached listing while it is valid; a listing with a missing plugin is not cached."""
        generation = self._loop.herder.context.generation
        now_s = asyncio.get_running_loop().time()
        listing = self._cached
        expired = generation != self._cached_generation or now_s >= self._cached_until_s
        if listing is None or expired:
            listing = await self.list_all()
            complete = not any(each.worker_ids for each in listing.plugins) and not any(
                each.worker_ids for each in listing.record_plugins
            )
            self._cached_generation = generation
            self._cached_until_s = now_s + (_CACHED_S if complete else 0.0)
            self._cached = listing
        return listing

    async def _own(self) -> pb.ListPluginsResponse:
        plugins = await self._engine.load_plugins()
        response = pb.ListPluginsResponse(worker_ids=[self._worker_id])
        for each in plugins.installed():
            shown = plugin_view(each)
            shown.load_time.FromMilliseconds(plugins.loaded_ms)
            response.plugins.append(shown)
        for part in plugins.record_plugins:
            view = record_plugin_view(part)
            response.record_plugins.append(view)
            if part.kind == CONVERTER:
                response.record_plugins.add().CopyFrom(view)
                response.record_plugins[-1].kind = HEADER_CONVERTER
        for java_class in plugins.java_classes:
            _add_java_class(response, java_class, plugins.loaded_ms)
        for problem in plugins.problems:
            response.problems.add(
                package=problem.package,
                entry_point=problem.entry_point,
                message=problem.shown,
                worker_ids=[self._worker_id],
            )
        return response


def _add_java_class(
    response: pb.ListPluginsResponse, each: engine_pb2.JavaClass, loaded_ms: int
) -> None:
    names = {"class_name": each.class_name, "version": each.version, "java_plugin": each.plugin}
    if each.kind not in CONNECTOR_KINDS:
        response.record_plugins.add(kind=each.kind, **names)
        return
    added = response.plugins.add(
        type=encode_connector_type(each.kind),
        description=f"A class of the Java plugin {each.plugin}.",
        **names,
    )
    added.load_time.FromMilliseconds(loaded_ms)


def merged(responses: Mapping[str, pb.ListPluginsResponse | None]) -> pb.ListPluginsResponse:
    """Merge the listings of all workers, by worker id; None for a worker that did not respond."""
    by_version: dict[tuple[str, ...], tuple[pb.Plugin, list[str]]] = {}
    of_records: dict[tuple[str, ...], tuple[pb.RecordPlugin, list[str]]] = {}
    listings = {worker_id: each for worker_id, each in sorted(responses.items()) if each}
    # a worker of an earlier version lists none: it is not known to lack any
    silent = [worker_id for worker_id, each in listings.items() if not each.record_plugins]
    for worker_id, listing in listings.items():
        for plugin in listing.plugins:
            key = (plugin.class_name, plugin.version, plugin.java_plugin)
            first, worker_ids = by_version.setdefault(key, (plugin, []))
            worker_ids.append(worker_id)
            if first.load_time.ToNanoseconds() < plugin.load_time.ToNanoseconds():
                first.load_time.CopyFrom(plugin.load_time)
        for each in listing.record_plugins:
            place = (each.kind, each.class_name, each.version, each.java_plugin)
            of_records.setdefault(place, (each, [*silent]))[1].append(worker_id)
    response = pb.ListPluginsResponse(
        worker_ids=listings, silent_worker_ids=sorted(responses.keys() - listings.keys())
    )
    for _, (plugin, worker_ids) in sorted(by_version.items(), key=lambda each: each[0]):
        response.plugins.append(plugin)
        if len(worker_ids) < len(listings):
            response.plugins[-1].worker_ids.extend(worker_ids)
    for _, (each, worker_ids) in sorted(of_records.items(), key=lambda found: found[0]):
        response.record_plugins.append(each)
        if len(worker_ids) < len(listings):
            response.record_plugins[-1].worker_ids.extend(sorted(worker_ids))
    response.problems.extend(_merged_problems(listings.values()))
    return response


def _merged_problems(listings: Iterable[pb.ListPluginsResponse]) -> Iterator[pb.PluginProblem]:
    """Each problem once, with its workers."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in (problem for listing in listings for problem in listing.problems):
        place = (each.package, each.entry_point, each.message)
        found.setdefault(place, []).extend(each.worker_ids)
    for (package, entry_point, message), worker_ids in sorted(found.items()):
        yield pb.PluginProblem(
            package=package, entry_point=entry_point, message=message, worker_ids=worker_ids
        )


def plugin_faults(config: Mapping[str, str], listing: pb.ListPluginsResponse) -> list[Violation]:
    """See ``ClusterPlugins.faults``."""
    faults: list[Violation] = []
    silent = listing.silent_worker_ids
    if silent:
        text = (
            f"whether {_listed(silent)} {'has' if len(silent) == 1 else 'have'} the classes of the "
            "connector was not checked: no answer"
        )
        faults.append(SkippedCheck(_field(CONNECTOR_CLASS), text))
    for setting, kind in class_settings(config):
        given = config[setting].strip()
        everywhere = listing.worker_ids
        java = _java_classes(given, kind, setting, listing)
        if java:
            wanted = config.get(version_setting(setting), "")
            faults += _java_faults(setting, java, wanted, everywhere)
            continue
        name = given.replace(":", ".")
        found = _versions(kind, name, listing)
        workers = {each.version: each.worker_ids or everywhere for each in found}
        having = {worker for each in workers.values() for worker in each}
        lacking = [worker for worker in everywhere if worker not in having]
        if having and lacking:
            faults.append(_missing(setting, name, lacking, sorted(having)))
        elif len(workers) > 1:
            listed = ", ".join(f"{key} on {_listed(each)}" for key, each in workers.items())
            text = (
                f"the workers have different versions of {name}: {listed}. A task runs the version "
                "of its worker"
            )
            faults.append(Caution(_field(setting), text))
    return faults


def class_settings(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings with classes and the kinds of these classes."""
    found = [(CONNECTOR_CLASS, "")]
    found += [(f"{each}.converter", CONVERTER) for each in ("key", "value", "header")]
    for kind in ("transforms", "predicates"):
        names = (each.strip() for each in config.get(kind, "").split(","))
        found += [(f"{kind}.{name}.type", kind) for name in dict.fromkeys(names) if name]
    return ((setting, kind) for setting, kind in found if config.get(setting, "").strip())


def _java_classes(
    given: str, kind: str, setting: str, listing: pb.ListPluginsResponse
) -> list[pb.Plugin | pb.RecordPlugin]:
    """The versions of the Java class that a setting names; none for a class in Python."""
    name = given.removeprefix(_JAVA_PREFIX).strip()
    if name == given and _versions(kind, name, listing):
        return []
    kinds = (CONVERTER, HEADER_CONVERTER) if kind == CONVERTER else (kind,)
    listed: Iterable[pb.Plugin | pb.RecordPlugin] = listing.plugins
    if setting != CONNECTOR_CLASS:
        listed = (each for each in listing.record_plugins if each.kind in kinds)
    return [
        each
        for each in listed
        if each.java_plugin and name in (each.class_name, each.class_name.rpartition(".")[2])
    ]


def _java_faults(
    setting: str,
    found: Sequence[pb.Plugin | pb.RecordPlugin],
    wanted: str,
    everywhere: Sequence[str],
) -> Iterator[Violation]:
    """Workers on which a Java class is missing, or whose latest version in the range differs."""
    name = found[0].class_name
    try:
        allowed = VersionRange.parse(wanted)
    except VersionRangeError:  # the validation of the setting reports it
        return
    usable: dict[str, set[str]] = {}
    for each in found:
        if each.version in allowed or each.java_plugin.partition(VERSION_MARK)[2] in allowed:
            for worker_id in each.worker_ids or everywhere:
                usable.setdefault(worker_id, set()).add(each.version)
    lacking = [worker for worker in everywhere if worker not in usable]
    if usable and lacking:
        what = f"{name} {wanted}" if wanted else name
        yield _missing(setting, what, lacking, sorted(usable))
        return
    by_version: dict[str, list[str]] = {}
    for worker_id, versions in sorted(usable.items()):
        by_version.setdefault(max(versions, key=Version), []).append(worker_id)
    if len(by_version) > 1:
        listed = ", ".join(f"{key} on {_listed(each)}" for key, each in by_version.items())
        yield Caution(
            _field(setting),
            f"the workers have different versions of {name}: {listed}. A task runs the version of "
            f"its worker; {version_setting(setting)} selects one",
        )


def _versions(
    kind: str, name: str, listing: pb.ListPluginsResponse
) -> Sequence[pb.Plugin | pb.RecordPlugin]:
    found: list[pb.Plugin | pb.RecordPlugin]
    if kind:
        found = [each for each in listing.record_plugins if each.kind == kind]
    else:
        found = [*listing.plugins]
    return [
        each for each in found if not each.java_plugin and name in (each.class_name, *each.aliases)
    ]


def _missing(setting: str, name: str, lacking: Sequence[str], having: Sequence[str]) -> Violation:
    return Violation(
        _field(setting),
        f"{name} is not installed on {_listed(lacking)}, only on {_listed(having)}:"
        " tasks may run on any worker, so install the plugin on all workers and restart the ones"
        " without it",
    )


def _field(setting: str) -> str:
    return f'config["{setting}"]'


def _listed(worker_ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(worker_ids) - most} more" if len(worker_ids) > most else ""
    return ", ".join(worker_ids[:most]) + more
