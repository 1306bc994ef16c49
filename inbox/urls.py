"""The inbox's addresses."""

from django.urls import path

from inbox.views import away, details, expired, lists, live, profile, starting, steps

app_name = "inbox"

urlpatterns = [
    path("", lists.task_list, name="list"),
    path("rows/", lists.task_rows, name="rows"),
    path("live/", live.live, name="live"),
    path("profile/", profile.profile, name="profile"),
    path("profile/away/", away.away, name="away"),
    path("profile/away/<int:delegation_id>/end/", away.back, name="back"),
    path("tasks/<uuid:task_id>/", expired.signed_in_to_post(details.task_detail), name="task"),
    path(
        "tasks/<uuid:task_id>/draft/", expired.signed_in_to_post(details.task_draft), name="draft"
    ),
    path("tasks/<uuid:task_id>/again/", expired.again, name="again"),
    path("tasks/<uuid:task_id>/fate/", details.task_fate, name="fate"),
    path("tasks/<uuid:task_id>/claim/", steps.claim, name="claim"),
    path("tasks/<uuid:task_id>/release/", steps.release, name="release"),
    path("tasks/<uuid:task_id>/hand-over/", steps.hand_over, name="hand_over"),
    path("tasks/<uuid:task_id>/extend/", steps.extend, name="extend"),
    path("tasks/<uuid:task_id>/comment/", steps.comment, name="comment"),
    path("tasks/<uuid:task_id>/cancel/", steps.cancel, name="cancel"),
    path("runs/new/", starting.new_run, name="new_run"),
    path("sessions/<uuid:session_id>/", starting.session, name="session"),
    path("sessions/<uuid:session_id>/rows/", starting.session_rows, name="session_rows"),
]
