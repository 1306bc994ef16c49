"""Starting a saved agent, and watching its session."""

from datetime import UTC, datetime
from uuid import UUID

from django.contrib.auth.decorators import login_required, permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from agentruns import queries as runs
from agentruns.services import creating
from inbox.models.tasks import HumanTask, TaskState
from inbox.views.people import person

MAX_INPUT = 20_000


@never_cache
@login_required
@permission_required("agentruns.add_run", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def new_run(request: HttpRequest) -> HttpResponse:
    """Choose an agent and say what it should do."""
    agents = runs.active_agents()
    if request.method != "POST":
        return render(request, "inbox/new_run.html", {"agents": agents})
    slug, text = request.POST.get("agent", ""), request.POST.get("input", "")
    error = _problem(text)
    if not error:
        try:
            run_id = creating.start_agent(
                slug=slug,
                text=text,
                requester_id=person(request).pk,
                now=datetime.now(UTC),
            )
            return redirect("inbox:session", session_id=run_id)
        except creating.AgentNotFound:
            error = _("Choose an agent.")
    context = {"agents": agents, "error": error, "chosen": slug, "text": text}
    return render(request, "inbox/new_run.html", context, status=422)


def _problem(text: str) -> str:
    if not text.strip():
        return _("Say what the agent should do.")
    if len(text) > MAX_INPUT:
        return _("Use at most %(most)s characters.") % {"most": MAX_INPUT}
    return _("Remove the characters that can't be stored.") if "\x00" in text else ""


@never_cache
@login_required
@require_safe
def session(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """The runs of a session, for who started it and for operators."""
    return render(request, "inbox/session.html", _session(request, session_id))


@never_cache
@login_required
@require_safe
def session_rows(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """The session's runs alone, for the page that keeps itself up to date."""
    return render(request, "inbox/_session_rows.html", _session(request, session_id))


def _session(request: HttpRequest, session_id: UUID) -> dict[str, object]:
    user = person(request)
    mine = runs.requested_by(session_id, user_id=user.pk)
    chain = runs.session_chain(session_id) if mine or user.has_perm("agentruns.view_run") else []
    if not chain:
        raise Http404
    tasks = {task.run_id: task for task in HumanTask.objects.filter(session_id=session_id)}
    rows = [(run, tasks.get(run.id)) for run in chain]
    last, task = rows[-1]
    settled = last.settled or (task is not None and task.state == TaskState.ENDED)
    return {"rows": rows, "session_id": session_id, "settled": settled}
