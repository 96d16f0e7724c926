"""Plans of config changes, and the check that a reviewed plan is unchanged."""

import hashlib
import json
from collections.abc import Mapping

from drover import __version__
from drover.api.common.v1.preview_pb2 import StepSchemas
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.engine.v1 import engine_pb2
from drover.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    Reason,
)
from drover.model.config import ConfigMap
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import check_config
from drover_worker.admin.config_difference import ConfigDifference
from drover_worker.admin.masking import kept_values
from drover_worker.admin.reads import Reads
from drover_worker.admin.views import ConnectorViews
from drover_worker.core.config.checks import config_error, sink_group_violations
from drover_worker.shell.engine_link import EngineLink
from drover_worker.shell.engine_violations import violations_of

#: How many records a plan previews.
_ROWS = 20


class ConnectorPlans:
    """Compares a config with the present one, and previews both."""

    def __init__(
        self, engine: EngineLink, reads: Reads, views: ConnectorViews, *, group_id: str
    ) -> None:
        self._engine = engine
        self._reads = reads
        self._views = views
        self._group_id = group_id

    async def plan(
        self, request: pb.PlanConnectorConfigRequest, call: AdminCall
    ) -> pb.PlanConnectorConfigResponse:
        """Plan the put of a config.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every violation; TOO_LARGE.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        name = request.name or request.config.get("name", "").strip()
        config = dict(request.config)
        if request.keep_masked:
            config |= kept_values(config, await self._reads.stored_config(name, call.deadline))
        await check_config(name, config, self._engine.find_faults, call.principal.name)
        config["name"] = name
        await self._reads.prepare(call.deadline)
        entry = self._reads.view.connectors.get(name)
        present = dict((entry and entry.config) or {})
        response = pb.PlanConnectorConfigResponse(
            created=entry is None,
            revision=entry.config_revision if entry else 0,
            changes=self._changes(present, config),
            components=await self._components(name, config, call),
        )
        before, after = await self._schemas(config, response)
        response.input_schemas.CopyFrom(before)
        response.output_schemas.CopyFrom(after)
        if present and response.changes:
            _, output = await self._schemas(present, pb.PlanConnectorConfigResponse())
            response.present_output_schemas.CopyFrom(output)
        masked = self._views.masked(config, config, show_undefined=True)
        response.plan_hash = plan_hash(name, masked, response)
        return response

    async def check(
        self, message: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PlanConnectorConfigResponse:
        """The plan of a put, if it matches the put's ``plan_hash``.

        Raises:
            FailedPreconditionError: PLAN_CHANGED.
        """
        request = pb.PlanConnectorConfigRequest(name=message.name, config=message.config)
        planned = await self.plan(request, call)
        # a plan without changes is accepted: an earlier attempt of this call has written the config
        if planned.changes and planned.plan_hash != message.plan_hash:
            raise FailedPreconditionError(
                Reason.PLAN_CHANGED,
                f"the plan for connector {message.name!r} has changed: its config, the plugins or "
                "the records are different now; make a new plan and review it",
                metadata={"planHash": planned.plan_hash},
            )
        return planned

    def _changes(self, present: ConfigMap, config: ConfigMap) -> list[pb.SettingChange]:
        difference = ConfigDifference.between(present, config)
        before = self._views.masked(present, present, show_undefined=True)
        after = self._views.masked(config, config, show_undefined=True)
        keys = sorted([*difference.added, *difference.changed, *difference.removed])
        return [
            pb.SettingChange(name=key, before=before.get(key), after=after.get(key)) for key in keys
        ]

    async def _components(self, name: str, config: ConfigMap, call: AdminCall) -> list[str]:
        answer = await self._engine.validate(config, call.principal.name)
        faults = violations_of(answer)
        if self._views.type_of(config) == "sink":
            faults += sink_group_violations(name, config, self._group_id)
        if faults:
            raise config_error(name, faults)
        assert isinstance(answer, engine_pb2.ConfigValidation)
        return [f"drover {__version__}", *answer.components]

    async def _schemas(
        self, config: ConfigMap, response: pb.PlanConnectorConfigResponse
    ) -> tuple[StepSchemas, StepSchemas]:
        """The schemas before the first step and after the last; a note if they are unavailable."""
        try:
            wanted = engine_pb2.PreviewConnector(config=config, row_count=_ROWS)
            preview = await self._engine.preview(wanted)
        except (FailedPreconditionError, DeadlineExceededError, InvalidArgumentError) as error:
            response.notes.append(f"no schemas: {error.message}")
            return StepSchemas(), StepSchemas()
        response.notes.extend(preview.notes)
        failed = [row for row in preview.rows if row.failed_step]
        if failed:
            first = failed[0]
            response.notes.append(
                f"{len(failed)} of {len(preview.rows)} records fail, the first at "
                f"{first.failed_step}: {first.error}"
            )
        if not preview.schemas:
            return StepSchemas(), StepSchemas()
        return preview.schemas[0], preview.schemas[-1]


def plan_hash(
    name: str, masked_config: Mapping[str, str], plan: pb.PlanConnectorConfigResponse
) -> str:
    """The SHA-256 of everything that a plan depends on, in hexadecimal digits."""
    inputs = {
        "name": name,
        "revision": plan.revision,
        "config": dict(masked_config),
        "components": list(plan.components),
        "input": [sorted(plan.input_schemas.keys), sorted(plan.input_schemas.values)],
    }
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
