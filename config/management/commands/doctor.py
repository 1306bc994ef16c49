"""`manage.py doctor`: what is configured, reachable and missing, with what to do about it."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from django.core.management import BaseCommand

from config import doctor


class Command(BaseCommand):
    help = "Look at configuration, database, broker, mail, sweeps, keys, audit and people."
    # An unsafe set-up is what it is there to tell of.
    requires_system_checks: Any = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = list(doctor.examine())
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in found]))
        else:
            self._say(found)
        if any(finding.state == doctor.FAIL for finding in found):
            raise SystemExit(1)

    def _say(self, found: list[doctor.Finding]) -> None:
        for finding in found:
            self.stdout.write(f"{finding.state:5} {finding.group:14} {finding.text}")
            if finding.hint:
                self.stdout.write(f"{'':20} → {finding.hint}")
