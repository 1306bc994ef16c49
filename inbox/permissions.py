"""Who may see and who may decide: buttons and checks come from the same functions."""

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from inbox.models.tasks import HumanTask, TaskState

SUBMIT = "submit"
CANCEL = "cancel"


def asked_people(task: HumanTask) -> QuerySet[User]:
    """Return the active users that the task asks, the requester only where the rule allows it."""
    people = User.objects.filter(
        Q(groups__in=task.groups.all()) | Q(pk__in=task.users.all()), is_active=True
    )
    if not task.requester_may_answer and task.requester_id is not None:
        people = people.exclude(pk=task.requester_id)
    return people.distinct()


def visible_tasks(user: User) -> QuerySet[HumanTask]:
    """Return the tasks that ask the user or came of the user's own run; all for an operator."""
    if not user.is_active:
        return HumanTask.objects.none()
    if user.has_perm("inbox.view_humantask"):
        return HumanTask.objects.all()
    mine = Q(groups__in=user.groups.all()) | Q(users=user)
    allowed = Q(requester_may_answer=True) | ~Q(requester=user) | Q(requester__isnull=True)
    asked = Q(pk__in=HumanTask.objects.filter(mine, allowed).values("pk"))
    return HumanTask.objects.filter(asked | Q(requester=user))


def can_decide(user: User, task: HumanTask) -> bool:
    """Only people whom the task asks decide; operators and superusers as such do not."""
    return task.state == TaskState.OPEN and asked_people(task).filter(pk=user.pk).exists()


def actions_for(user: User, task: HumanTask) -> frozenset[str]:
    """Return what the user may do to the task now: `SUBMIT`, `CANCEL`, both or nothing."""
    allowed = {SUBMIT} if can_decide(user, task) else set()
    if task.state == TaskState.OPEN and user.has_perm("inbox.change_humantask"):
        allowed.add(CANCEL)
    return frozenset(allowed)
