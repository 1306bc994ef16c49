"""The database's clock, for leases and deadlines: hosts may disagree, the database does not."""

from datetime import timedelta
from typing import Any

from django.db.models import DateTimeField, ExpressionWrapper, Value
from django.db.models.functions import Now


def database_now(*, plus: timedelta) -> "ExpressionWrapper[Any]":
    """An expression for use inside an UPDATE or a WHERE."""
    return ExpressionWrapper(Now() + Value(plus), output_field=DateTimeField())
