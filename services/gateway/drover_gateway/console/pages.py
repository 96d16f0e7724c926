"""What the modules of the pages have in common: a request, its caller, and the table of paths."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from drover.client import ConnectClient
from drover_gateway.console.frame import Visit
from drover_gateway.console.http import Form, Response
from drover_gateway.console.live import LivePage
from drover_gateway.console.rights import ReadRights
from drover_gateway.console.shown import ShownViews
from drover_gateway.console.topics import Topics
from drover_gateway.identity.credentials import Caller
from drover_gateway.server import Scope
from drover_gateway.views import Views
from drover_gateway.workers import Workers


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page.

    Attributes:
        scope: The ASGI scope.
        path: The path, decoded.
        visit: Who asks.
        caller: The caller, for the workers.
        query: The query.
        form: The submitted form; empty for GET.
        secure: Whether the connection is encrypted.
    """

    scope: Scope
    path: str
    visit: Visit
    caller: Caller
    query: Form
    form: Form
    secure: bool


Handler = Callable[[Request], Awaitable[Response]]
#: The handlers of a module's pages by method and path. What a page is about is in its query,
#: because a path cannot contain every name.
Routes = Mapping[tuple[str, str], Handler]
#: Makes the live part of a page from the query of its stream.
LivePages = Mapping[str, Callable[[Form, ReadRights], LivePage]]
#: Makes the events of a page that shows something else than connectors, for a caller.
EventPages = Mapping[str, Callable[[Caller, Form], AsyncGenerator[bytes, None]]]


class Pages:
    """The pages of a module.

    Attributes:
        routes: Their handlers.
        live_pages: The live parts of pages that show connectors, by the name of the stream.
        event_pages: The events of other pages, by the name of the stream.
    """

    routes: Routes
    live_pages: LivePages = MappingProxyType({})
    event_pages: EventPages = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Context:
    """What the pages need.

    Attributes:
        workers: The workers.
        views: The connectors that each caller may see.
        shown: Their rows.
        topics: Their topics.
    """

    workers: Workers
    views: Views
    shown: ShownViews
    topics: Topics

    def client(self, request: Request) -> ConnectClient:
        """Calls the workers with the credential of the request."""
        return self.workers.client(request.caller)


def redirect(target: str) -> Response:
    """Makes the browser load another page."""
    return Response(status=303, headers=(("location", target),))


def with_cookies(response: Response, cookies: Sequence[str]) -> Response:
    """A response that sets cookies too."""
    headers = (*response.headers, *(("set-cookie", each) for each in cookies))
    return Response(response.body, response.status, response.content_type, headers, response.cache)
