"""`manage.py create_api_key`: make a key and show it, once."""

import argparse
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.management import BaseCommand, CommandError

from agentruns.models.steering import DeferredHandling, Scope
from agentruns.services.keys import create_key


class Command(BaseCommand):
    help = "Make an API key and print it. It can't be shown again."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--owner", required=True, help="user name of the person it belongs to")
        parser.add_argument("--name", required=True, help="what the key is for")
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            dest="scopes",
            help="what it opens; can be given several times (runs:create, unless given)",
        )
        parser.add_argument("--client", action="store_true", help="its caller answers, not people")

    def handle(
        self,
        *args: Any,
        owner: str,
        name: str,
        scopes: list[str] | None,
        client: bool,
        **options: Any,
    ) -> None:
        user = User.objects.filter(username=owner, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user named {owner}.")
        _key, text = create_key(
            name=name,
            owner_id=user.pk,
            scopes=scopes or [Scope.CREATE],
            deferred_handling=DeferredHandling.CLIENT if client else DeferredHandling.INBOX,
            now=datetime.now(UTC),
        )
        self.stdout.write(text)
