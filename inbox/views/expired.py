"""A post that comes too late for its login or its form token is shown again, with all that was
typed, and not stored."""

from collections.abc import Callable
from functools import wraps
from uuid import UUID

from django.contrib.auth import login
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from inbox.login import ThrottledForm
from inbox.views import details

# What a form may carry; more than any question has fields.
MAX_FIELDS = 100
ANSWERING = {"inbox:task", "inbox:draft", "inbox:again"}

View = Callable[..., HttpResponse]


def typed_again(request: HttpRequest) -> list[tuple[str, str]]:
    """Return what was typed, to be carried through a new sign-in."""
    carried = [
        (name, str(value))
        for name, value in request.POST.items()
        if name == "note" or name.startswith(details.FIELD_PREFIX)
    ]
    return carried[:MAX_FIELDS]


def signed_in_to_post(view: View) -> View:
    """Like `login_required`, but a post without a login keeps what was typed."""

    @wraps(view)
    def wrapped(request: HttpRequest, task_id: UUID) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, task_id)
        if request.method == "POST":
            return sign_in_again(request, task_id)
        return redirect_to_login(request.get_full_path())

    return wrapped


def sign_in_again(
    request: HttpRequest, task_id: UUID, form: AuthenticationForm | None = None
) -> HttpResponse:
    """Ask who it is, and carry what was typed."""
    context = {
        "form": form or AuthenticationForm(request),
        "task_id": task_id,
        "carried": typed_again(request),
    }
    return render(request, "registration/login_again.html", context, status=403)


@never_cache
@require_POST
def again(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Sign in and show the form as it was typed; sending it is for the person."""
    form = ThrottledForm(request, data=request.POST)
    if not form.is_valid():
        return sign_in_again(request, task_id, form)
    user = form.get_user()
    if not isinstance(user, User):
        raise Http404
    login(request, user)
    notice = _("You are signed in again. Nothing was sent yet: look at it once more, then send it.")
    return details.shown_again(request, task_id, notice, status=200)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form whose token has expired comes back filled; a post from another site gets nothing."""
    task_id = _answered_task(request)
    if task_id is None or not _from_here(request):
        return render(request, "403_csrf.html", status=403)
    if not request.user.is_authenticated:
        return sign_in_again(request, task_id)
    notice = _("This page had been open for too long. Nothing was sent: look at it, then send it.")
    return details.shown_again(request, task_id, notice, status=403)


def _answered_task(request: HttpRequest) -> UUID | None:
    try:
        found = resolve(request.path_info)
    except Resolver404:
        return None
    task_id = found.kwargs.get("task_id") if found.view_name in ANSWERING else None
    return task_id if isinstance(task_id, UUID) else None


def _from_here(request: HttpRequest) -> bool:
    site = f"{request.scheme}://{request.get_host()}"
    origin, referer = (request.headers.get(name, "") for name in ("Origin", "Referer"))
    return origin == site or (not origin and referer.startswith(f"{site}/"))
