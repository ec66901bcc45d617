"""A site's goodbye to the server, so that no round waits for it.

Without it, FLARE's server notices that a site is gone only when heartbeats have been missing for a
while, and until then a round waits for the site.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from nvflare.private.fed.app.deployer.base_client_deployer import BaseClientDeployer

log = logging.getLogger(__name__)

PATIENCE = 2.0  # seconds; the server may be gone, or not even reached yet


def farewell() -> Callable[[], None]:
    """A function that says goodbye for the site that FLARE will create in this process."""
    create, created = BaseClientDeployer.create_fed_client, []

    def creating(deployer: Any, *arguments: Any) -> Any:
        created.append(create(deployer, *arguments))
        return created[-1]

    def say() -> None:
        if created and created[-1].token:  # else the server does not know it
            last_word = threading.Thread(target=_log_out, args=(created[-1],), daemon=True)
            last_word.start()
            last_word.join(PATIENCE)

    BaseClientDeployer.create_fed_client = creating
    return say


def _log_out(site: Any) -> None:
    try:
        with site.engine.new_context() as fl_ctx:
            site.logout_client(fl_ctx)
    except Exception as error:  # parts may be half built, or gone, at such a moment
        log.info("the server did not receive the goodbye: %s", error)
