"""A method that stops during its work until it is told to continue, where $GATE says so.

So that something can happen to a process that is really at work, however fast the machine.
"""

import os
import time
from pathlib import Path

from pfedes import Client, Context, Method, MethodConfig, Payload, Upload
from pfedes.core.training import fit_labels

HELD = "client-0001"


class GatedConfig(MethodConfig):
    """Like Standalone's."""

    name: str = "gated:Gated"


class Gated(Method[GatedConfig]):
    """Trains alone; one client says who trains it, and waits."""

    Config = GatedConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        if client.name == HELD and (gate := os.environ.get("GATE")):
            where = f"{ctx.streams.seed}-{ctx.round}"
            Path(gate, f"{where}-{os.getpid()}").touch()
            deadline = time.monotonic() + 120
            while not Path(gate, where).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        return Upload(fit_labels(client, ctx))
