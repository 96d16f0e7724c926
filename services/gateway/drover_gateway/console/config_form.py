"""The form for a connector's config: it creates connectors, and changes existing ones."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace

import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Reason,
    UnauthenticatedError,
)
from drover.rpc.logs import current_request_id
from drover_gateway.console import config_form_page, config_result_page
from drover_gateway.console.config_draft import TEXT, Draft, read_draft
from drover_gateway.console.config_fields import (
    CLASS,
    TOPIC,
    TOPICS,
    Checked,
    Fault,
    Show,
    checked,
    setting_of,
)
from drover_gateway.console.config_form_page import EDIT, NEW, PREVIEW_ROWS, PREVIEW_ROWS_MAX
from drover_gateway.console.config_proposals import KnownProposals, Proposals
from drover_gateway.console.config_result_page import Conflict, conflict_of
from drover_gateway.console.config_settings_page import settings_html
from drover_gateway.console.config_text import Notation
from drover_gateway.console.frame import SIGN_IN, encoded, notice, page
from drover_gateway.console.html import Node, join, tag
from drover_gateway.console.http import PageError, Response
from drover_gateway.console.pages import Context, Handler, Pages, Request
from drover_gateway.console.sessions import Sessions
from drover_gateway.rest.errors import STATUSES

#: A validation may call the systems that the config names, a plan reads records of them.
_CHECK_TIMEOUT_S, _RECORDS_TIMEOUT_S = 60.0, 120.0
_TEXTS_AT_A_TIME = 2
#: Secrets that were typed in sessions that ended, and in the present one.
_SEALED_MAX = 4
_NOTATIONS: Mapping[str, Notation | None] = {
    "fields": None,
    "yaml": Notation.YAML,
    "json": Notation.JSON,
}
_CONFLICTS = frozenset(
    (Reason.REVISION_MISMATCH, Reason.CONNECTOR_ALREADY_EXISTS, Reason.CONNECTOR_NOT_FOUND)
)

_log = structlog.get_logger("drover.gateway.console")


class ConfigFormPages(Pages):
    """The choice of a class, the form with its checks, preview, plan and write.

    Args:
        context: What the pages need.
        sessions: Seals the secrets that users type.
    """

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self._proposals = KnownProposals()
        # YAML takes seconds per megabyte
        self._reading = asyncio.Semaphore(_TEXTS_AT_A_TIME)
        self.routes = {
            ("GET", NEW): self._new,
            ("GET", EDIT): self._edit,
            ("POST", NEW): self._submitted,
            ("POST", EDIT): self._submitted,
        }
        #: What is shown in place of a refused form: the same form with the user's input.
        self.refused: Mapping[str, Handler] = {NEW: self._refused, EDIT: self._refused}

    async def _new(self, request: Request) -> Response:
        query = request.query
        request.visit.rights.demand_for_some("ValidateConfig")
        class_name, name = query.one("class"), query.one("name").strip()
        notation = _NOTATIONS.get(query.one("notation"))
        if not class_name and notation is None:
            client = self._context.client(request)
            found = await client.list_plugins(kinds=("source", "sink"))
            content = config_form_page.classes_html(found.plugins, name)
            return Response(page(request.visit, "New connector", content))
        config = {CLASS: class_name} if class_name else {}
        draft = Draft(name, config, is_new=True, notation=notation)
        return await self._form(request, draft, is_new=True)

    async def _edit(self, request: Request) -> Response:
        name = request.query.one("name")
        if not name:
            raise PageError(404, "No connector is named", "Choose one in the list of connectors.")
        request.visit.rights.demand("ValidateConfig", name)
        connector = await self._context.client(request).get_connector(name)
        config = {key: value for key, value in connector.config.items() if key != "name"}
        notation = _NOTATIONS.get(request.query.one("notation"))
        draft = Draft(name, config, is_new=False, revision=connector.revision, notation=notation)
        return await self._form(request, draft)

    async def _submitted(self, request: Request) -> Response:
        form = request.form
        if form.one(TEXT):
            try:
                # a text is read only after a worker has accepted the caller
                await self._context.client(request).list_loggers()
            except DroverError as error:
                return await self._unread(request, error)
        draft = await self._draft(request)
        what = form.one("do") or "validate"
        if form.one("filter") in list(Show):
            draft, what = replace(draft, show=Show(form.one("filter"))), "edit"
        try:
            if draft.text_error:
                return await self._form(request, draft, status=400)
            if what in _NOTATIONS:
                return await self._form(request, draft.in_notation(_NOTATIONS[what]))
            match what:
                case "preview":
                    return await self._preview(request, draft)
                case "plan":
                    return await self._plan(request, draft)
                case "apply":
                    return await self._apply(request, draft)
                case "check" if form.one("part") == "checks":
                    return await self._checks(request, draft)
                case "edit" | "check":
                    return await self._form(request, draft)
            return await self._form(request, draft, asks_systems=True)
        except UnauthenticatedError as error:
            return self._kept(request, draft, 401, error.message)
        except InvalidArgumentError as error:
            return await self._form(request, draft, error=error, status=400)
        except PermissionDeniedError as error:
            text = notice("forbidden", "The role is missing", tag("p", error.message))
            return await self._form(request, draft, text, status=403)
        except DroverError as error:
            status, why = _answer_to(error)
            text = notice("error", "Nothing was written", tag("p", why))
            return await self._form(request, draft, text, status=status)

    async def _refused(self, request: Request) -> Response:
        """The form of an ended session: nothing is done, and the input is shown again."""
        # the caller is unknown: no work for a text
        draft = await self._draft(request, reads_text=False)
        text = "The form was made in a session that has ended, or for another token."
        return self._kept(request, draft, 403, text)

    async def _unread(self, request: Request, error: DroverError) -> Response:
        """The text as the user typed it, because the workers do not accept the caller now."""
        draft = await self._draft(request, reads_text=False)
        status, why = _answer_to(error)
        if isinstance(error, UnauthenticatedError):
            return self._kept(request, draft, status, why)
        content = config_form_page.text_html(
            request.visit,
            draft,
            None,
            request.form.one("sealed"),
            notice("error", "The config was not checked", tag("p", why)),
        )
        return Response(page(request.visit, config_form_page.form_title(draft), content), status)

    # reading and showing the input

    async def _draft(self, request: Request, *, reads_text: bool = True) -> Draft:
        form, is_new = request.form, request.path == NEW
        secrets, unread = self._typed_before(request)
        if reads_text:
            async with self._reading:
                draft = await asyncio.to_thread(read_draft, form, secrets, is_new=is_new)
        else:
            draft = read_draft(form, secrets, is_new=is_new, reads_text=False)
        # they stay hidden, also in the fields of a class that does not define them as passwords
        draft = replace(draft, passwords=draft.passwords | secrets.keys())
        if not unread or not reads_text:
            return draft
        note = "The secrets that you typed before can no longer be read: type them again."
        return replace(draft, text_error=draft.text_error or note)

    def _typed_before(self, request: Request) -> tuple[dict[str, str], str]:
        """The secrets that the user typed on earlier pages, and what this session cannot read."""
        secrets: dict[str, str] = {}
        unread = []
        for sealed in request.form.one("sealed").split(".", _SEALED_MAX)[:_SEALED_MAX]:
            text = self._sessions.unseal(sealed, request.visit.session) if sealed else "{}"
            if text is None:
                unread.append(sealed)
            else:
                secrets |= json.loads(text)
        return secrets, ".".join(unread)

    def _sealed(self, request: Request, draft: Draft) -> str:
        typed = draft.typed_secrets
        return self._sessions.seal(json.dumps(dict(typed)), request.visit.session) if typed else ""

    async def _form(
        self,
        request: Request,
        draft: Draft,
        *notices: Node,
        status: int = 200,
        error: InvalidArgumentError | None = None,
        is_new: bool = False,
        asks_systems: bool = False,
    ) -> Response:
        """The form with the result of a validation.

        Args:
            request: The request.
            draft: The input.
            notices: What is shown above it.
            status: The HTTP status.
            error: Why a call was refused; its violations are shown too.
            is_new: Whether nothing is filled in yet.
            asks_systems: Whether the systems that the config names are asked.
        """
        checks: Checked | None = None
        plugin: pb.Plugin | None = None
        proposals: Proposals = {}
        notation = draft.notation
        if draft.text_error:
            notation = notation or Notation.JSON
        elif draft.config or notation is None:
            try:
                found = await self._plugin(request, draft)
                plugin = found.plugin if found is not None else None
                if notation is None:
                    proposals = await self._proposals_for(request, plugin)
                checks = await self._checked(
                    request, draft, found, proposals, is_new=is_new, asks_systems=asks_systems
                )
                draft = _with_passwords(draft, checks)
            except (UnauthenticatedError, PermissionDeniedError):
                if request.scope["method"] == "GET" or not notices:
                    raise
                notation = notation or Notation.JSON
            except DroverError as failure:
                notation = notation or Notation.JSON
                code, why = _answer_to(failure)
                status = max(status, code)
                text = notice("error", "The config was not checked", tag("p", why))
                notices = (*notices, text)
        if error is not None:
            checks, notices = _with_error(checks, error, notices)
        sealed = self._sealed(request, draft)
        if notation is None and checks is not None:
            # a form with thousands of settings takes a while, and others wait for this thread
            content = await asyncio.to_thread(
                config_form_page.form_html,
                request.visit,
                draft,
                checks,
                plugin,
                proposals,
                sealed,
                *notices,
            )
        else:
            draft = replace(draft, notation=notation or Notation.JSON)
            content = config_form_page.text_html(request.visit, draft, checks, sealed, *notices)
        title = config_form_page.form_title(draft)
        return Response(page(request.visit, title, content), status)

    async def _checks(self, request: Request, draft: Draft) -> Response:
        """The part of the form that ``console.js`` replaces while the user types."""
        found = await self._plugin(request, draft)
        proposals = await self._proposals_for(request, found and found.plugin)
        checks = await self._checked(request, draft, found, proposals)
        summary = config_form_page.checks_html(draft, checks)
        settings = await asyncio.to_thread(settings_html, draft, checks)
        return Response(encoded(join(summary, settings)))

    async def _checked(
        self,
        request: Request,
        draft: Draft,
        plugin: pb.GetPluginResponse | None,
        proposals: Proposals,
        *,
        is_new: bool = False,
        asks_systems: bool = False,
    ) -> Checked:
        answer = await self._context.client(request).validate_config(
            draft.sent_config,
            skip_systems=not asks_systems,
            keep_masked=True,
            timeout_s=_CHECK_TIMEOUT_S,
        )
        keys = plugin.config_keys if plugin is not None else ()
        own = {each.name for each in keys if not each.common}
        found = await asyncio.to_thread(
            checked, draft.config, answer, own, proposals, draft.passwords, is_new=is_new
        )
        # what was not asked for is not worth a line
        return found if asks_systems else replace(found, skipped=())

    async def _plugin(self, request: Request, draft: Draft) -> pb.GetPluginResponse | None:
        class_name = draft.config.get(CLASS, "")
        if not class_name:
            return None
        try:
            return await self._context.client(request).get_plugin(class_name)
        except NotFoundError:
            return None

    async def _proposals_for(self, request: Request, plugin: pb.Plugin | None) -> Proposals:
        found = await self._proposals.of(request.caller, self._context.client(request))
        # the setting ``topics`` of a source names topics of another cluster
        is_sink = plugin is not None and plugin.type == pb.CONNECTOR_TYPE_SINK
        return {**found, TOPICS: found.get(TOPIC, ())} if is_sink else found

    def _kept(self, request: Request, draft: Draft, status: int, why: str) -> Response:
        """The input as text, for an unknown caller."""
        content = config_form_page.text_html(
            request.visit,
            draft.in_notation(draft.notation or Notation.JSON),
            None,
            # the same user can read all of them after a sign-in
            ".".join(filter(None, (self._typed_before(request)[1], self._sealed(request, draft)))),
            notice(
                "error",
                "Nothing was written, and your input is kept below",
                tag("p", why),
                tag(
                    "p",
                    tag("a", "Sign in in another tab", href=SIGN_IN, target="_blank"),
                    ", then continue here.",
                ),
            ),
        )
        return Response(page(request.visit, config_form_page.form_title(draft), content), status)

    # what a config does

    async def _preview(self, request: Request, draft: Draft) -> Response:
        given = request.form.one("rows")
        count = int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0
        found = await self._context.client(request).preview_connector(
            draft.sent_config if draft.name else draft.config,
            row_count=min(count or PREVIEW_ROWS, PREVIEW_ROWS_MAX),
            keep_masked=True,
            timeout_s=_RECORDS_TIMEOUT_S,
        )
        content = config_result_page.preview_html(
            request.visit, draft, found, self._sealed(request, draft)
        )
        return Response(page(request.visit, f"Preview of {draft.name or 'the config'}", content))

    async def _planned(self, request: Request, draft: Draft) -> pb.PlanConnectorConfigResponse:
        return await self._context.client(request).plan_connector_config(
            draft.name, draft.sent_config, keep_masked=True, timeout_s=_RECORDS_TIMEOUT_S
        )

    async def _plan(self, request: Request, draft: Draft) -> Response:
        plan = await self._planned(request, draft)
        if plan.revision != draft.revision:
            return await self._conflict(request, draft)
        return await self._plan_page(request, draft, plan)

    async def _plan_page(
        self,
        request: Request,
        draft: Draft,
        plan: pb.PlanConnectorConfigResponse,
        *notices: Node,
        status: int = 200,
    ) -> Response:
        task_count = 0
        if not plan.created:
            connector = await self._context.client(request).get_connector(draft.name)
            task_count = len(connector.task_indexes)
        content = config_result_page.plan_html(
            request.visit, draft, plan, self._sealed(request, draft), task_count
        )
        title = f"Plan for {draft.name}"
        return Response(page(request.visit, title, join(*notices, content)), status)

    async def _apply(self, request: Request, draft: Draft) -> Response:
        client = self._context.client(request)
        plan_hash = request.form.one("plan")
        if plan_hash:
            plan = await self._planned(request, draft)
            if plan.revision != draft.revision:
                return await self._conflict(request, draft)
            if plan.plan_hash != plan_hash:
                text = (
                    "The plugins or the records are different now. Review the new plan below: it"
                    " has another hash."
                )
                changed = notice("error", "Nothing was written", tag("p", text))
                return await self._plan_page(request, draft, plan, changed, status=409)
        try:
            if draft.is_new:
                made = await client.create_connector(
                    draft.name, draft.sent_config, initial_state=draft.state
                )
                return self._written(request, draft, made.revision, "The connector was created.")
            answer = await client.put_connector_config(
                draft.name,
                draft.sent_config,
                expected_revision=draft.revision,
                skip_unchanged=True,
                plan_hash=plan_hash,
                keep_masked=True,
                timeout_s=_RECORDS_TIMEOUT_S,
            )
        except DroverError as error:
            if error.reason in _CONFLICTS:
                return await self._conflict(request, draft)
            if error.reason is Reason.PLAN_CHANGED:
                return await self._plan(request, draft)
            raise
        is_change = answer.connector.revision != draft.revision
        text = "The config was written." if is_change else "The connector had this config already."
        return self._written(request, draft, answer.connector.revision, text)

    def _written(self, request: Request, draft: Draft, revision: int, text: str) -> Response:
        _log.info("a config was written", connector=draft.name, revision=revision)
        content = config_result_page.written_html(draft.name, revision, text)
        return Response(page(request.visit, draft.name, content))

    async def _conflict(self, request: Request, draft: Draft) -> Response:
        """Nothing was written, because another user was faster."""
        conflict = await self._compared(request, draft)
        base = replace(draft, revision=conflict.revision)
        if not draft.is_new and not conflict.revision:
            # the next attempt creates it
            base = replace(draft, revision=0, is_new=True)
        elif draft.is_new:
            base = draft
        content = config_result_page.conflict_html(
            request.visit, draft, base, conflict, self._sealed(request, draft)
        )
        title = "Another user changed the connector"
        return Response(page(request.visit, title, content), 409)

    async def _compared(self, request: Request, draft: Draft) -> Conflict:
        client = self._context.client(request)
        own = draft.shown_config
        try:
            now = await client.get_connector(draft.name)
            history = await client.get_connector_history(draft.name)
        except NotFoundError:
            return conflict_of(None, None, own, 0, "")
        except PermissionDeniedError:
            # a name that this caller may not see
            return Conflict(0, "", False, [])
        versions = [each for each in history if each.HasField("config_version")]
        seen = [each.config_version.config for each in versions if each.revision == draft.revision]
        author = next((each.author for each in versions if each.config_version.current), "")
        present = _without_name(now.config)
        before = _without_name(seen[0]) if seen else None
        return conflict_of(before, present, own, now.revision, author)


def _answer_to(error: DroverError) -> tuple[int, str]:
    """The HTTP status for an error of the workers, and what is shown."""
    if error.reason is Reason.DEADLINE_EXCEEDED:
        return 503, error.message
    if isinstance(error, FailedPreconditionError):
        return 400, error.message
    status = STATUSES.get(error.reason, 500)
    if status < 500 or status == 503:
        return status, error.message
    request_id = current_request_id()
    _log.error("a form failed", reason=error.reason.value, why=error.message)
    return 500, f"The logs have the cause under the request id {request_id}."


def _without_name(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if key != "name"}


def _with_passwords(draft: Draft, checks: Checked) -> Draft:
    """A draft with the settings whose values its pages never show."""
    found = (each for each in checks.fields.values() if each.type == "PASSWORD")
    return replace(draft, passwords=draft.passwords | {each.name for each in found})


def _with_error(
    checks: Checked | None, error: InvalidArgumentError, notices: tuple[Node, ...]
) -> tuple[Checked | None, tuple[Node, ...]]:
    """Add the violations of a refused call that the validation does not have."""
    faults = [Fault(setting_of(each.field), each.description) for each in error.violations]
    if checks is None or not faults:
        return checks, (*notices, notice("error", "Nothing was written", tag("p", error.message)))
    rest = [each for each in faults if each not in checks.errors]
    return replace(checks, errors=[*checks.errors, *rest]), notices
