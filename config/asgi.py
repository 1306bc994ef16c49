"""The ASGI application: `uvicorn config.asgi:application`."""

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

pages = get_asgi_application()

# These need the settings and apps that were just loaded.
from config import apiserver  # noqa: E402
from config.checks import refuse_unsafe  # noqa: E402

refuse_unsafe()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Pages and everything else the Django way, the API by its own."""
    await (apiserver.serve if apiserver.belongs(scope) else pages)(scope, receive, send)
