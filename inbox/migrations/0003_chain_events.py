"""Events written before there were chains are linked, in the order in which they were written."""

import hashlib
import json
import secrets
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import Count, OuterRef, Subquery

BATCH = 1_000


def chain(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """As agentruns.audit does it at the time of this migration."""
    events: Any = apps.get_model("inbox", "TaskEvent")
    tasks: Any = apps.get_model("inbox", "HumanTask")
    task_id, number, digest = None, 0, ""
    changed = []
    for event in list(events.objects.order_by("task_id", "id")):
        if event.task_id != task_id:
            task_id, number, digest = event.task_id, 0, ""
        number += 1
        event.number = number
        event.salt = secrets.token_hex(16)
        event.data_digest = _sha256(f"{event.salt}{event.data}")
        at = int(event.created_at.timestamp() * 1_000_000)
        covered = [digest, f"task:{task_id}", number, event.type, event.actor_id]
        covered += [event.api_key_id, at, event.data_digest, event.on_behalf_of_id]
        event.digest = digest = _sha256(json.dumps(covered))
        changed.append(event)
    fields = ["number", "salt", "data_digest", "digest"]
    events.objects.bulk_update(changed, fields, batch_size=BATCH)
    counted = events.objects.filter(task=OuterRef("pk")).order_by().values("task")
    counted = counted.annotate(count=Count("pk")).values("count")
    tasks.objects.filter(history__isnull=False).update(event_count=Subquery(counted))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Migration(migrations.Migration):
    dependencies = [("inbox", "0002_steering")]
    operations = [migrations.RunPython(chain, migrations.RunPython.noop)]
