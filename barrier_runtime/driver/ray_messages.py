"""Route the messages that Ray prints in the driver to a logger, because they name Ray's parts, which users never see.

Ray prints a message when a worker process dies or a task is repeated, for example after the coordinator's death, which
a run survives. Ray has no setting for these messages: ``log_to_driver=False`` concerns the output of workers only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ray._private import worker as ray_worker

#: ``pid`` of the messages that Ray itself writes, as opposed to the output of the user's own tasks and actors
_RAY_ITSELF = "raylet"

#: class of the coordinator's actor, which Ray's messages name
_COORDINATOR = "CoordinatorActor"

_logger = logging.getLogger("cutline.ray")
_print_to_stream = ray_worker.print_to_stdstream


def log_ray_messages(*, is_embedded: bool) -> None:
    """Log the messages of Ray from now on, instead of printing the messages.

    Parameters
    ----------
    is_embedded : bool
        Whether this process started Ray for the runs alone. Of another Ray, whose other actors belong to the user, only
        messages that name the coordinator are logged.
    """

    def log_or_print(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        text = "\n".join(data["lines"])
        if data.get("pid") == _RAY_ITSELF and (is_embedded or _COORDINATOR in text):
            _logger.info("Ray: %s", text)
        else:
            _print_to_stream(data, ignore_prefix)

    ray_worker.print_to_stdstream = log_or_print


def are_messages_logged() -> bool:
    """Return whether `log_ray_messages` was called in this process."""
    return ray_worker.print_to_stdstream is not _print_to_stream
