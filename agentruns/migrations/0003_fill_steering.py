"""Keys that might answer have the scope for it; each agent's composition is its first version."""

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def fill(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    keys: Any = apps.get_model("agentruns", "ApiKey")
    for key in keys.objects.filter(may_answer=True):
        key.scopes = ["runs:create", "tasks:answer"]
        key.save(update_fields=["scopes"])
    agents: Any = apps.get_model("agentruns", "Agent")
    versions: Any = apps.get_model("agentruns", "AgentVersion")
    versions.objects.bulk_create(
        versions(agent=agent, number=1, composition=agent.composition, created_at=agent.updated_at)
        for agent in agents.objects.all()
    )


def unfill(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    keys: Any = apps.get_model("agentruns", "ApiKey")
    for key in keys.objects.all():
        key.may_answer = "tasks:answer" in key.scopes
        key.save(update_fields=["may_answer"])
    versions: Any = apps.get_model("agentruns", "AgentVersion")
    versions.objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("agentruns", "0002_steering")]
    operations = [migrations.RunPython(fill, unfill)]
