"""The forms with which people change their own password: the change stands in the history."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from django.contrib.auth import forms
from django.contrib.auth.models import User

from inbox.services import people

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    SetForm = forms.SetPasswordForm[User]
else:
    SetForm = forms.SetPasswordForm


class _Recorded(SetForm):
    def save(self, commit: bool = True) -> User:
        user = super().save(commit=False)
        if commit:
            people.store_password(user=user, actor_id=user.pk, now=datetime.now(UTC))
        return user


class RecordedChange(_Recorded, forms.PasswordChangeForm):
    """With the old one."""


class RecordedReset(_Recorded):
    """With the link of a mail, which proves who it is."""
