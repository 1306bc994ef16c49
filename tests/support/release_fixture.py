"""Rows as this release writes them: `python -m tests.support.release_fixture > FILE`.

Make one per release, under its version, and never change it afterwards: later releases read it.
"""

import io
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from typing import Any

# For the fixture alone: nothing that it encrypts is secret.
KEY = "c2F5c28tcmVsZWFzZS1maXh0dXJlLWtleS0wMDAwMDA="
MODELS = ("auth.group", "auth.user", "agentruns", "inbox")


def prepare() -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "SAYSO_HOME": tempfile.mkdtemp(prefix="sayso-fixture-"),
        "SAYSO_SECRET_KEYS": KEY,
        "SAYSO_EXTRA_MODELS": "tests.support.scripted_model",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def make() -> None:
    """One run of every kind, and the questions that they asked."""
    from django.contrib.auth.models import Group, User

    from agentruns import worker
    from agentruns.services import creating
    from inbox.models.tasks import HumanTask
    from inbox.services import answering
    from tests.support.story import QUESTION, composition

    approver = User.objects.create_user("fixture-approver")
    approver.groups.add(Group.objects.create(name="approvers"))

    def create(prompt: str) -> Any:
        return creating.create_run(
            request=json.dumps({"composition": composition(prompt)}),
            api_key_id=None,
            requester_id=None,
            deferred_handling="inbox",
            now=datetime.now(UTC),
        )

    for prompt in ("Hello", "FAIL kaboom", "STREAM 3", QUESTION):
        worker.execute(create(prompt))
    asked = create('ASK2 {"question": "First?"}')
    worker.execute(asked)
    task = HumanTask.objects.get(run_id=asked)
    answering.submit(
        task_id=task.pk,
        user_id=approver.pk,
        action_id="submit",
        values={},
        digest=task.digest,
        now=datetime.now(UTC),
    )
    create("OK")


def main() -> None:
    prepare()
    make()
    from django.core.management import call_command

    text = io.StringIO()
    excluded = ["agentruns.sweepmark"]
    call_command("dumpdata", *MODELS, exclude=excluded, indent=1, stdout=text)
    sys.stdout.write(text.getvalue())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
