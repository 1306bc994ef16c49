"""Accounts and groups, as the audit and the rules know them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agentruns.audit import Subject
from agentruns.services import auditing


def user_key(pk: int) -> str:
    """Return the id of a person's chain."""
    return f"user {pk}"


def group_key(pk: int) -> str:
    """Return the id of a group's chain."""
    return f"group {pk}"


def store_password(*, user: User, actor_id: int, now: datetime) -> None:
    """Store the password that was set on `user`, and nothing else of theirs."""
    with transaction.atomic():
        user.save(update_fields=["password"])
        record_password_change(user_id=user.pk, actor_id=actor_id, now=now)


def record_password_change(*, user_id: int, actor_id: int, now: datetime) -> None:
    """Note who changed whose password, never what it is; in the caller's transaction."""
    auditing.record(
        subject=Subject.MEMBERSHIP,
        subject_id=user_key(user_id),
        kind="password_changed",
        actor_id=actor_id,
        now=now,
    )
