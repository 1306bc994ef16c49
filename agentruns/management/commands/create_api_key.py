"""`manage.py create_api_key`: make a key and show it, once."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management import BaseCommand, CommandError

from agentruns.models.steering import DeferredHandling, Scope
from agentruns.services.keys import MOST_A_MINUTE, create_key

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
# Ten years: whoever wants more wants a key that doesn't expire.
LONGEST = timedelta(days=3650)


def duration(text: str) -> timedelta:
    """Return a duration that was written as 90m, 12h or 30d."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([mhd])", text, re.ASCII)
    length = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None
    if length is None or length > LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90m, 12h or 30d")
    return length


def rate(text: str) -> int:
    """Return a number of requests a minute; 0 is no limit."""
    if not re.fullmatch(r"[0-9]{1,7}", text, re.ASCII) or int(text) > MOST_A_MINUTE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {MOST_A_MINUTE}")
    return int(text)


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
        parser.add_argument(
            "--rate",
            type=rate,
            help="requests a minute (the server's default, unless given; 0: no limit)",
        )
        parser.add_argument(
            "--expires-in", type=duration, help="90m, 12h or 30d (never, unless given)"
        )

    def handle(
        self,
        *args: Any,
        owner: str,
        name: str,
        scopes: list[str] | None,
        client: bool,
        rate: int | None,
        expires_in: timedelta | None,
        **options: Any,
    ) -> None:
        user = User.objects.filter(username=owner, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user named {owner}.")
        now = datetime.now(UTC)
        _key, text = create_key(
            name=name,
            owner_id=user.pk,
            scopes=scopes or [Scope.CREATE],
            deferred_handling=DeferredHandling.CLIENT if client else DeferredHandling.INBOX,
            rate_per_minute=rate,
            expires_at=now + expires_in if expires_in else None,
            now=now,
        )
        self.stdout.write(text)
