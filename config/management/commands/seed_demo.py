"""`manage.py seed_demo`: people, agents and keys to try the product with, once per install."""

import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.management import BaseCommand
from django.db import transaction

from agentruns.demo.agents import DEMO_AGENTS
from agentruns.models.steering import Agent, DeferredHandling, Scope
from agentruns.services.agents import first_version
from agentruns.services.creating import start_agent
from agentruns.services.keys import create_key
from inbox.models.routing import RoutingRule

PEOPLE = ("admin", "operator", "approver", "approver2", "outsider")
# Operators watch and steer, approvers answer; both may start an agent.
OPERATORS = (
    *("view_agent", "view_run", "view_runevent", "add_run", "change_run"),
    *("view_humantask", "change_humantask", "view_taskevent", "view_routingrule"),
)


class Command(BaseCommand):
    help = "Make the demo people, agents and keys, and write them to demo.json."

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.SAYSO_HOME / "demo.json"
        if not path.exists():
            seed(path)
        demo = json.loads(path.read_text())
        self.stdout.write(f"Sayso runs at {settings.SAYSO_BASE_URL}")
        for role, login in demo["users"].items():
            self.stdout.write(f"  {role:10} {login['username']} / {login['password']}")
        self.stdout.write(f"  API key    {demo['api_key']}")


def seed(path: Path) -> None:
    """Make everything anew and write `path` before the commit: no people without passwords."""
    with transaction.atomic():
        group = _group("approvers", ("add_run",))
        operators = _group("operators", OPERATORS)
        users = {role: _person(role, group) for role in PEOPLE}
        users["operator"][0].groups.add(operators)
        _agents()
        rule, _ = RoutingRule.objects.get_or_create(name="Approvers")
        rule.groups.add(group)
        _start_agents(users["operator"][0])
        demo = {"base_url": settings.SAYSO_BASE_URL, **_keys(users)}
        _write(path, {**demo, "users": {role: login for role, (_, login) in users.items()}})


def _group(name: str, permissions: tuple[str, ...]) -> Group:
    group, _ = Group.objects.get_or_create(name=name)
    group.permissions.set(Permission.objects.filter(codename__in=permissions))
    return group


def _start_agents(requester: User) -> None:
    """A first visitor finds an inbox in which agents ask."""
    for agent in DEMO_AGENTS:
        start_agent(
            slug=agent.slug,
            text=agent.example_input,
            requester_id=requester.pk,
            now=datetime.now(UTC),
        )


def _person(role: str, approvers: Group) -> tuple[User, dict[str, str]]:
    password = secrets.token_urlsafe(12)
    user, _ = User.objects.get_or_create(username=role)
    user.is_superuser = role == "admin"
    user.is_staff = role in ("admin", "operator")
    user.set_password(password)
    user.save()
    if role.startswith("approver"):
        user.groups.add(approvers)
    return user, {"username": role, "password": password}


def _agents() -> None:
    for agent in DEMO_AGENTS:
        saved, made = Agent.objects.get_or_create(
            slug=agent.slug,
            defaults={
                "name": agent.name,
                "description": agent.description,
                "example_input": agent.example_input,
                "composition": agent.composition,
            },
        )
        if made:
            first_version(agent=saved, actor_id=None, now=datetime.now(UTC))


def _keys(users: dict[str, tuple[User, dict[str, str]]]) -> dict[str, str]:
    now = datetime.now(UTC)
    admin, approver = users["admin"][0].pk, users["approver"][0].pk
    client = DeferredHandling.CLIENT
    return {
        "api_key": create_key(name="demo", owner_id=admin, now=now)[1],
        "approver_api_key": create_key(
            name="demo approver", owner_id=approver, scopes=(Scope.CREATE, Scope.ANSWER), now=now
        )[1],
        "client_api_key": create_key(
            name="demo client", owner_id=admin, deferred_handling=client, now=now
        )[1],
    }


def _write(path: Path, demo: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(demo, file, indent=2)
    new.replace(path)
