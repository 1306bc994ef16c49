"""Filters for what a model wrote."""

from django import template
from django.utils.safestring import SafeString

from inbox.rendering import markdown, text

register = template.Library()


@register.filter
def reveal(value: str) -> SafeString:
    """Escaped text with hidden characters as marks."""
    return text.reveal(str(value))


@register.filter
def markdown_safe(value: str) -> SafeString:
    """Sanitised HTML of markdown."""
    return markdown.render_markdown(str(value))
