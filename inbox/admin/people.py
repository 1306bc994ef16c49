"""Users and groups: who is in which decides who may answer, so changes are in the audit too."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from inbox.services import people

# So many open questions are named; the rest is counted.
NAMED = 10


def _lines(rules: QuerySet[RoutingRule], tasks: QuerySet[HumanTask]) -> list[str]:
    found = [_line("Routing rule that asks them", "routingrule", rule) for rule in rules]
    found += [_line("Open question to them", "humantask", task) for task in tasks[:NAMED]]
    more = tasks.count() - NAMED
    return [*found, f"Open questions to them, beside these: {more}"] if more > 0 else found


def _line(what: str, kind: str, thing: Model) -> str:
    page = reverse(f"admin:inbox_{kind}_change", args=[thing.pk])
    return format_html('{}: <a href="{}">{}</a>', what, page, thing)


class AuditedUserAdmin(AuditedAdmin, UserAdmin):  # type: ignore[type-arg]
    subject = Subject.MEMBERSHIP

    def key_of(self, thing: Any) -> str:
        return people.user_key(thing.pk)

    def held_by(self, things: Iterable[Any]) -> list[str]:
        ids = [user.pk for user in things]
        return _lines(people.rules_naming(user_ids=ids), people.open_tasks_naming(user_ids=ids))

    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 -- Django's name
        form_url: str = "",
    ) -> HttpResponse:
        if request.method != "POST":
            return super().user_change_password(request, id, form_url)
        request.sayso_password = True  # type: ignore[attr-defined]
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)

    def record_change(self, request: HttpRequest, obj: Any) -> None:
        if not getattr(request, "sayso_password", False):
            super().record_change(request, obj)
            return
        people.record_password_change(
            user_id=obj.pk, actor_id=int(request.user.pk or 0), now=datetime.now(UTC)
        )


class GroupForm(forms.ModelForm):  # type: ignore[type-arg]
    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        asked = people.asked_by_default(group_ids=[self.instance.pk] if self.instance.pk else [])
        if asked.exclude(name=name).exists():
            raise forms.ValidationError(
                "This group is asked by its name wherever no routing rule matches: keep the name."
            )
        return name


class AuditedGroupAdmin(AuditedAdmin, GroupAdmin):  # type: ignore[misc]
    subject = Subject.MEMBERSHIP
    form = GroupForm

    def key_of(self, thing: Any) -> str:
        return people.group_key(thing.pk)

    def held_by(self, things: Iterable[Any]) -> list[str]:
        ids = [group.pk for group in things]
        found = [
            format_html("Asked by its name wherever no routing rule matches: {}", group)
            for group in people.asked_by_default(group_ids=ids)
        ]
        rules = people.rules_naming(group_ids=ids)
        return [*found, *_lines(rules, people.open_tasks_naming(group_ids=ids))]

    def last_state(self, thing: Any) -> dict[str, Any]:
        return {**super().last_state(thing), "members": people.members_of(thing)}


admin.site.unregister(User)
admin.site.register(User, AuditedUserAdmin)
admin.site.unregister(Group)
admin.site.register(Group, AuditedGroupAdmin)
