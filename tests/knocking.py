"""A stranger at FLARE's doors: `python knocking.py PLAN.json`, with a cell that guards nothing.

Sends every request to every target, and prints what came back.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.message import Message

from pfedes.deploy.hardening.unix import UnixDriver

PATIENCE = 5.0


def main(plan: dict[str, Any]) -> None:
    driver_mgr.register(UnixDriver)
    inner = plan["url"].startswith("unix")
    cell = CoreCell(
        plan["name"],
        root_url="" if inner else plan["url"],
        parent_url=plan["url"] if inner else None,
        secure=not inner,
        credentials=plan["credentials"],
        auth_identity_map={"server": "localhost"},  # the name on its certificate
    )
    cell.start()
    deadline = time.monotonic() + 30
    while not cell.agents:
        assert time.monotonic() < deadline, "no connection"
        time.sleep(0.05)
    said: dict[str, dict[str, str]] = {target: {} for target in plan["targets"]}

    def knock(target: str, channel: str, topic: str) -> None:
        reply = cell.send_request(channel, topic, target, Message({}, b""), PATIENCE)
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        said[target][f"{channel} {topic}"] = f"{code} {reply.get_header(MessageHeaderKey.ERROR)}"

    with ThreadPoolExecutor(16) as pool:
        for target in plan["targets"]:
            for channel, topic in plan["doors"]:
                pool.submit(knock, target, channel, topic)
    print(json.dumps(said), flush=True)
    os._exit(0)  # without FLARE's farewells


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
