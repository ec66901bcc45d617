"""A traitor in the coordinator's processes, which are the genuine ones: knocks in their names.

Python imports this when it starts, if the directory is on PYTHONPATH. A process that runs FLARE
for the server, or a job of the server's, carries out the plan that it finds in KNOCKING as soon as
there is one, and writes the answers beside it.
"""

import os
import sys
import threading
import time
from pathlib import Path

ROLES = {"pfedes.deploy.process": "server", "pfedes.deploy.hardening.job": "job"}


def wait_and_knock(plans: Path, role: str) -> None:
    plan = plans / f"{role}.plan.json"
    while not plan.exists():
        time.sleep(0.1)
    import json

    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    sys.path.append(str(Path(__file__).parents[1]))
    from knocking import knock

    (cell,) = CoreCell.ALL_CELLS.values()
    said = knock(cell, json.loads(plan.read_text()))
    written = plans / f"{role}.part"
    written.write_text(json.dumps([cell.my_info.fqcn, said]))
    written.rename(plans / f"{role}.json")


modules = [ROLES[word] for word in sys.orig_argv if word in ROLES]
if "KNOCKING" in os.environ and modules and "server" in sys.orig_argv:
    where = Path(os.environ["KNOCKING"])
    threading.Thread(target=wait_and_knock, args=(where, modules[0]), daemon=True).start()
