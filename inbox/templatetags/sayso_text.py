"""Filters for what a model wrote."""

import json

from django import template
from django.utils.safestring import SafeString

from inbox.models.tasks import TaskEvent
from inbox.rendering import markdown, text

register = template.Library()


@register.filter
def reveal(value: str) -> SafeString:
    """Escaped text with hidden characters as marks."""
    return text.reveal(str(value))


@register.filter
def comment_text(event: TaskEvent) -> str:
    """What a comment says."""
    return str(json.loads(event.data).get("text", ""))


@register.filter
def markdown_safe(value: str) -> SafeString:
    """Sanitised HTML of markdown."""
    return markdown.render_markdown(str(value))
