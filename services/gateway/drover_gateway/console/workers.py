"""The workers with their use of memory and CPU and their work; drains and resumptions."""

from urllib.parse import urlencode

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover_gateway.console import workers_page
from drover_gateway.console.frame import WORKERS, page
from drover_gateway.console.http import Form, PageError, Response
from drover_gateway.console.pages import Context, Pages, Request, redirect
from drover_gateway.console.usage import CpuUses

_TIMEOUT_S = 10.0


class WorkersPages(Pages):
    """The list of workers, and what a drain or a resumption will do."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._uses = CpuUses()
        self.routes = {
            ("GET", WORKERS): self._list,
            ("POST", workers_page.CONFIRM): self._confirm,
            ("POST", workers_page.RUN): self._run,
        }

    async def _list(self, request: Request) -> Response:
        info = await self._info(request)
        uses = {each.worker_id: self._uses.of(each) for each in info.workers}
        content = workers_page.workers_html(
            request.visit, info, uses, changed=request.query.one("worker")
        )
        return Response(page(request.visit, "Workers", content, current=WORKERS))

    async def _confirm(self, request: Request) -> Response:
        action = _action(request.form)
        request.visit.rights.demand(action.rpc)
        info = await self._info(request)
        worker = _worker(info, request.form)
        content = workers_page.confirm_html(request.visit, action, worker, info)
        title = f"{action.label} {worker.worker_id}?"
        return Response(page(request.visit, title, content, current=WORKERS))

    async def _run(self, request: Request) -> Response:
        action = _action(request.form)
        worker_id = request.form.one("worker")
        client = self._context.client(request)
        if action is workers_page.DRAIN:
            await client.drain_worker(worker_id)
        else:
            await client.resume_worker(worker_id)
        # its state is in the list: the worker hands its work over one by one
        return redirect(f"{WORKERS}?{urlencode({'worker': worker_id})}")

    async def _info(self, request: Request) -> pb.GetClusterInfoResponse:
        return await self._context.client(request).get_cluster_info(timeout_s=_TIMEOUT_S)


def _action(form: Form) -> workers_page.Action:
    action = workers_page.ACTIONS.get(form.one("action"))
    if action is None:
        known = ", ".join(workers_page.ACTIONS)
        raise PageError(400, "Unknown action", f"An action is one of {known}.")
    return action


def _worker(info: pb.GetClusterInfoResponse, form: Form) -> pb.WorkerInfo:
    worker_id = form.one("worker")
    for each in info.workers:
        if each.worker_id == worker_id:
            return each
    raise PageError(
        404,
        "The worker is no longer there",
        f"{worker_id} is not in the group now. Nothing was changed: load the list again.",
    )
