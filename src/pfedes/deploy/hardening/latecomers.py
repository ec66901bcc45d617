"""Connections that come about while everything is being closed.

FLARE closes the connections that it knows, and then waits for the threads that read them. Nobody
closes one whose handshake ends a moment later, and the wait never ends. On a busy machine, this
stopped a coordinator whose server did not answer in time.
"""

from collections.abc import Callable
from typing import Any

Add = Callable[[Any, Any], None]


def closing_latecomers(add_connection: Add) -> Add:
    """What FLARE does with a new connection; one that comes too late is closed at once."""

    def add(driver: Any, connection: Any) -> None:
        add_connection(driver, connection)
        # Whoever closes sets this first: either it sees the connection, or this sees that.
        if driver.connector is not None and driver.connector.stopped.is_set():
            connection.close()

    return add
