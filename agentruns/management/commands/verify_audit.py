"""`manage.py verify_audit`: look at every link and every seal of the audit."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError

from agentruns.services import proving


class Command(BaseCommand):
    help = "Look for events that were changed, removed or added outside of Sayso."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--checkpoints",
            type=Path,
            help="the seals as they were written outside of the database (SAYSO_AUDIT_FILE)",
        )
        parser.add_argument("--json", action="store_true", help="the report as JSON")

    def handle(self, *args: Any, checkpoints: Path | None, **options: Any) -> None:
        try:
            report = proving.verify(file=checkpoints)
        except OSError as error:
            raise CommandError(f"The file can't be read: {error}") from error
        if options["json"]:
            self.stdout.write(json.dumps(asdict(report)))
        else:
            self._say(report)
        if report.faults:
            raise SystemExit(1)

    def _say(self, report: proving.Report) -> None:
        for fault in report.faults:
            thing = {"checkpoints": "seal", "file": "line"}.get(fault.chain, "event")
            self.stdout.write(f"{fault.chain}: {thing} {fault.number} {fault.what}")
        self.stdout.write(
            f"{report.events} events in {report.chains} chains, {report.erased} of them erased, "
            f"{report.checkpoints} checkpoints: {len(report.faults) or 'no'} faults."
        )
