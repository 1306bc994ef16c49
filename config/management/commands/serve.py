"""`manage.py serve`: the whole product in one process."""

import argparse
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from config.env import get_env


class Command(BaseCommand):
    help = "Serve web pages and API, run agents and keep deadlines, all in this process."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--migrate", action="store_true", help="bring the database up to date")
        parser.add_argument("--demo", action="store_true", help="make the demo people and agents")

    def handle(self, *args: Any, migrate: bool, demo: bool, **options: Any) -> None:
        if not settings.SAYSO_EMBEDDED:
            raise CommandError(
                "REDIS_URL is set: start uvicorn, celery worker and celery beat instead."
            )
        try:
            self._serve(migrate=migrate, demo=demo)
        except KeyboardInterrupt:
            self.stderr.write("Stopped.")

    def _serve(self, *, migrate: bool, demo: bool) -> None:
        # Late, because other commands read this module's help without needing a server.
        from config import embedded

        env = get_env()
        try:
            with embedded.only_server(env.home), embedded.listen(env.port) as listener:
                self._prepare(migrate=migrate, demo=demo)
                server = embedded.EmbeddedServer(listener)
                self.stdout.write(f"Sayso is at {env.base_url} - Ctrl-C stops it.")
                self.stdout.flush()
                server.run()
        except (embedded.AlreadyRunning, embedded.PortTaken) as error:
            raise CommandError(str(error)) from error

    def _prepare(self, *, migrate: bool, demo: bool) -> None:
        if _pending_migrations():
            if not migrate:
                raise CommandError("The database is not up to date: run manage.py migrate first.")
            call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout)
        if demo:
            call_command("seed_demo", stdout=self.stdout)
        # The threads open their own.
        connection.close()


def _pending_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
