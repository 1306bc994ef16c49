"""Named places at which a test kills the process, to see that nothing is lost there.

`SAYSO_CRASH_AT` names one; unset, `reach` does nothing. Never set it on a site that people use: a
system check refuses it there.
"""

import logging
import os
import signal
from typing import Final

from django.conf import settings

logger = logging.getLogger(__name__)

POINTS: Final = frozenset(
    {
        "create:before_commit",
        "create:after_commit",
        "hint:before",
        "hint:after",
        "claim:before",
        "claim:after_commit",
        "model:calling",
        "model:answered",
        "append:before_commit",
        "append:after_commit",
        "finish:before_commit",
        "finish:after_commit",
        "submit:before_commit",
        "submit:after_commit",
        "expire:before_commit",
        "expire:after_commit",
        "release:before_commit",
        "release:after_commit",
    }
)


def reach(point: str) -> None:
    """Die here, as a machine without power does, if `point` was chosen."""
    if point == settings.SAYSO_CRASH_AT:
        logger.warning("crash point", extra={"action": "crash_point", "point": point})
        os.kill(os.getpid(), signal.SIGKILL)
