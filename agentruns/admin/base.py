"""What the admin's pages share: read-only records, JSON for reading."""

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[Any]
else:
    AnyAdmin = admin.ModelAdmin


class ReadOnlyAdmin(AnyAdmin):
    """Looking changes nothing: what is recorded stays as it was."""

    show_full_result_count = False
    actions_on_top = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def pretty(text: str | None) -> str:
    """Return stored JSON for reading, as HTML."""
    if text is None:
        return "none"
    shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return format_html("<pre>{}</pre>", with_escapes(shown))


def with_escapes(text: str) -> str:
    """Return JSON text in which what can't be seen, or turns the direction, is its escape."""
    return "".join(
        json.dumps(character)[1:-1] if unicodedata.category(character) == "Cf" else character
        for character in text
    )
