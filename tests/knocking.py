"""A stranger at FLARE's doors: `python knocking.py PLAN.json`, with a cell that guards nothing.

Sends every request to every target, and prints what came back. `inside/sitecustomize.py` does the
same from a process of the federation, with the cell that this has.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as AdminMessage

from pfedes.deploy.hardening.unix import UnixDriver

PATIENCE = 5.0

Said = dict[str, dict[str, str]]
"""The answer of each target to each door."""


def knock(cell: Any, plan: dict[str, Any]) -> Said:
    """Every door of every target, and every command that FLARE's sites know."""
    said: Said = {target: {} for target in plan["targets"]}

    def try_door(target: str, channel: str, topic: str) -> None:
        reply = cell.send_request(channel, topic, target, Message({}, b""), PATIENCE)
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        said[target][f"{channel} {topic}"] = f"{code} {reply.get_header(MessageHeaderKey.ERROR)}"

    def try_command(target: str, topic: str) -> None:
        request = Message({}, AdminMessage(topic, "id"))
        reply = cell.send_request(CellChannel.CLIENT_MAIN, "admin", target, request, PATIENCE)
        said[target][topic] = str(getattr(reply.payload, "body", reply.payload))

    with ThreadPoolExecutor(16) as pool:
        tried = []
        for target in plan["targets"]:
            tried += [pool.submit(try_door, target, *door) for door in plan["doors"]]
            tried += [pool.submit(try_command, target, t) for t in plan.get("commands", [])]
        for trial in tried:
            trial.result()
    return said


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
    print(json.dumps(knock(cell, plan)), flush=True)
    os._exit(0)  # without FLARE's farewells


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
