"""What two defects of public code do to accuracy: a head that never trains, a random projector.

    PYTHONPATH=benchmarks python benchmarks/public_code.py OUT [DATA [ROUNDS]]

DATA is digits (the default, minutes) or cifar10 (set PFEDES_DATA; hours). 20 rounds of all clients
unless ROUNDS says otherwise, E = 1, seeds 0 to 2; 10 clients on digits, 20 on CIFAR-10. Finished
runs below OUT are not repeated.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from pfedes import Config, Federation, configure, open_run
from pfedes.methods import Client, Context, Payload, Upload
from pfedes.methods.fedmrl import PROJECTOR, FedMRL, FedMRLConfig

SEEDS = (0, 1, 2)


class ForgetfulConfig(FedMRLConfig):
    """Hyper-parameters of FedMRL."""

    name: str = "public_code:ForgetfulFedMRL"  # type: ignore[assignment]  # theirs is a Literal


class ForgetfulFedMRL(FedMRL):
    """FedMRL whose clients train their projector and never store it."""

    Config = ForgetfulConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        drawn = {name: t.clone() for name, t in client.kept.items() if name.startswith(PROJECTOR)}
        upload = super().client_round(client, download, ctx)
        client.kept |= drawn
        return upload


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedgh, head trained": ("fedgh", {}),
    "fedgh, head trained, server_epochs = 100": ("fedgh", {"method.server_epochs": 100}),
    "fedgh, head frozen": ("fedgh", {"method.server_lr": 0.0}),
    "fedmrl, projector kept": ("fedmrl", {}),
    "fedmrl, projector random": ("public_code:ForgetfulFedMRL", {}),
}


def configured(variant: str, data: str, seed: int, rounds: int) -> Config:
    method, own = VARIANTS[variant]
    common = {
        "train.rounds": rounds,
        "train.epochs": 1,
        "train.participation": 1.0,
        "runtime.keep_rounds": 1,
        "runtime.report": False,
    }
    clients = 10 if data == "digits" else 20
    return configure(
        method=method, data=data, clients=clients, seed=seed, settings={**common, **own}
    )


def accuracies(variant: str, data: str, out: Path, rounds: int) -> list[float]:
    """The mean test accuracy of all clients after the last round, in percent, by seed."""
    found = []
    for seed in SEEDS:
        place = out / data / variant.replace(", ", "-").replace(" ", "_") / str(seed)
        if place.exists():
            run = open_run(place)
            if not run.finished:
                run = Federation.resume(place).run()
        else:
            run = Federation(configured(variant, data, seed, rounds), out=place).run()
        found.append(100 * float(run.summary["mean_accuracy"]))
    return found


def main() -> None:
    out, data = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "digits"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    for variant in VARIANTS:
        found = accuracies(variant, data, out, rounds)
        each = ", ".join(f"{value:.2f}" for value in found)
        print(f"{variant}: {statistics.mean(found):.2f} ({each})", flush=True)


if __name__ == "__main__":
    main()
