"""The API and the one map from what went wrong to what the caller reads."""

import logging
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.encoding import escape_uri_path, iri_to_uri
from django.views.decorators.http import require_safe
from ninja import NinjaAPI

from agentruns.api import router as runs
from agentruns.auth import ScopeMissing, Unauthorized, admit
from agentruns.protocol.bodies import BodyRefused
from agentruns.rates import Rate, TooManyRequests
from agentruns.services import cancelling, creating, snapshots
from config.openapi import document
from inbox.api import SessionNotFound
from inbox.api import router as tasks
from inbox.services import answering, checking, voting

PREFIX = "/api/"

logger = logging.getLogger(__name__)


# Its own document knows neither the bodies nor the refusals: `config.openapi` does.
api = NinjaAPI(auth=admit, urls_namespace="api", docs_url=None, openapi_url=None)
api.add_router("", runs)
api.add_router("", tasks)


def _problem(status: int) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: JsonResponse({"detail": str(error)}, status=status)


for known, status in (
    (cancelling.RunNotFound, 404),
    (creating.AgentNotFound, 404),
    (cancelling.RunFinished, 409),
    (creating.IdempotencyConflict, 409),
    (snapshots.SnapshotRefused, 409),
    (snapshots.AnswerRefused, 409),
    (answering.TaskNotFound, 404),
    (answering.NotAnApprover, 403),
    (SessionNotFound, 404),
    (ScopeMissing, 403),
    (answering.TaskChanged, 409),
    (answering.ClaimedByOther, 409),
    (voting.AlreadyVoted, 409),
    (voting.RightUsed, 409),
    (answering.TaskAlreadyDecided, 409),
):
    api.add_exception_handler(known, _problem(status))


@api.exception_handler(InterfaceError)
@api.exception_handler(OperationalError)
def _no_database(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("database failed", extra={"action": "database_failed"}, exc_info=error)
    # Where a commit was not acknowledged, nobody knows whether it happened.
    problem = "The database does not answer. The same answer or idempotency_key may be sent again."
    return JsonResponse({"detail": problem}, status=503, headers={"Retry-After": "2"})


@api.exception_handler(BodyRefused)
def _refused(request: HttpRequest, error: BodyRefused) -> HttpResponse:
    return JsonResponse({"detail": error.detail}, status=422)


@api.exception_handler(checking.InvalidAnswer)
def _invalid_answer(request: HttpRequest, error: checking.InvalidAnswer) -> HttpResponse:
    return JsonResponse({"detail": str(error), "errors": error.errors}, status=422)


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return JsonResponse({"detail": f"The body is larger than {most} bytes."}, status=413)


@api.exception_handler(Unauthorized)
def _unauthorized(request: HttpRequest, error: Unauthorized) -> HttpResponse:
    headers = {"WWW-Authenticate": "Bearer"}
    return JsonResponse({"detail": str(error)}, status=401, headers=headers)


@api.exception_handler(TooManyRequests)
def _too_many(request: HttpRequest, error: TooManyRequests) -> HttpResponse:
    headers = {"Retry-After": str(error.wait), **error.rate.headers()}
    return JsonResponse({"detail": str(error)}, status=429, headers=headers)


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """The document, for anybody: it says nothing of what is stored."""
    return JsonResponse(document())


def _say_rate(response: HttpResponseBase, rate: Rate) -> None:
    for name, value in rate.headers().items():
        response[name] = value


def _without_slash(request: HttpRequest) -> str:
    """The address without the slashes at its end; empty where it has none, or is the API's own."""
    path = request.path.rstrip("/")
    if path == request.path or not path.startswith(PREFIX):
        return ""
    # A path is decoded: it may hold line ends, and letters that no header does.
    query = request.META.get("QUERY_STRING", "")
    return escape_uri_path(path) + (f"?{iri_to_uri(query)}" if query else "")


TEXTS = {404: "Not Found", 405: "Method Not Allowed"}


def json_errors(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware: what no route of the API answers is JSON as well, and each answer says how many
    requests the key has left."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if (rate := getattr(request, "sayso_rate", None)) is not None:
            _say_rate(response, rate)
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        if not request.path.startswith(PREFIX) or response.status_code not in TEXTS or is_json:
            return response
        if response.status_code == 404 and (elsewhere := _without_slash(request)):
            return HttpResponse(status=307, headers={"Location": elsewhere})
        return JsonResponse({"detail": TEXTS[response.status_code]}, status=response.status_code)

    return middleware
