"""The ASGI application: `uvicorn config.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_asgi_application()

from config.checks import refuse_unsafe  # noqa: E402 -- needs the settings that were just loaded

refuse_unsafe()
