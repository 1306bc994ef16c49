"""The inbox's addresses."""

from django.urls import path

from inbox.views import details, lists, starting

app_name = "inbox"

urlpatterns = [
    path("", lists.task_list, name="list"),
    path("rows/", lists.task_rows, name="rows"),
    path("tasks/<uuid:task_id>/", details.task_detail, name="task"),
    path("tasks/<uuid:task_id>/fate/", details.task_fate, name="fate"),
    path("tasks/<uuid:task_id>/cancel/", details.task_cancel, name="cancel"),
    path("runs/new/", starting.new_run, name="new_run"),
    path("sessions/<uuid:session_id>/", starting.session, name="session"),
    path("sessions/<uuid:session_id>/rows/", starting.session_rows, name="session_rows"),
]
