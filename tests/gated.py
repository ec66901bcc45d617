"""A method that stops in the midst of its work until it is told to go on, where $GATE says so.

So that something can happen to a process that is really at work, however fast the machine.
"""

import os
import time
from pathlib import Path
from typing import Any

from pfedes import Client, Context, MethodConfig, Payload, Standalone, Upload

HELD = "client-0001"


class GatedConfig(MethodConfig):
    """Like Standalone's."""

    name: str = "gated:Gated"


class Gated(Standalone):
    """Trains alone; one client says who trains it, and waits."""

    Config = GatedConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        if client.name == HELD and (gate := os.environ.get("GATE")):
            where = f"{ctx.streams.seed}-{ctx.round}"
            Path(gate, f"{where}-{os.getpid()}").touch()
            deadline = time.monotonic() + 120
            while not Path(gate, where).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        answer: Any = super().client_round(client, download, ctx)
        return answer
