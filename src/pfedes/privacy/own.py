"""What a participant of a federation keeps of `[privacy]`: a key, an account, and its own limit.

Both files lie in its `state`, whatever the coordinator says or forgets:

    noise.key       the secret of its noise; never sent
    privacy.jsonl   the releases that its changes went into, over all runs
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError
from torch import Tensor

from pfedes.errors import BudgetError, DamageError
from pfedes.files import append_line, parse_json, whole_lines
from pfedes.privacy.accounting import epsilon_of_all
from pfedes.privacy.budget import Budget, Release
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import digest_of
from pfedes.privacy.mechanism import Mechanism
from pfedes.privacy.noise import NOISE_KEY, kept_key

ACCOUNT = "privacy.jsonl"


@dataclass(frozen=True)
class OwnPrivacy:
    """Clips and drowns what leaves, in mode local, and counts what left in every mode."""

    place: Path
    config: PrivacyConfig
    least_uploads: int
    limit: float = 0.0  # the participant's own epsilon; 0 = any
    delta: float = 1e-5

    def check(self, client: str) -> None:
        """Raises a BudgetError if another release would cost more than the participant allows."""
        if not self.limit:
            return
        if not self.config.noisy:
            raise BudgetError(
                f"limits.epsilon = {self.limit:g}, but nobody adds noise: privacy.mode is 'off'"
            )
        spent = self._budget().spent(client)
        now = epsilon_of_all(spent, self.delta)
        spent[self.config.noise] += 1
        if (then := epsilon_of_all(spent, self.delta)) > self.limit:
            raise BudgetError(
                f"{client} has spent epsilon {now:.2f} of {self.limit:g}; another release would "
                f"make it {then:.2f}"
            )

    def leaving(
        self,
        run: str,
        client: str,
        round: int,
        upload: dict[str, Tensor],
        download: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """What the participant sends instead of its upload; accounted for before it is returned."""
        if not self.config.noisy:
            return upload
        mechanism = Mechanism(self.config, self.least_uploads, self._key, run)
        # With the run: its noise is another, though the same change may come again.
        change = digest_of({client: mechanism.clipped(upload, download)})
        inputs = sha256(f"{run} {change}".encode()).hexdigest()
        if self.config.mode == "local":
            upload = mechanism.noised(client, round, upload, download)
        self._record(Release(round=round, inputs=inputs, clients=(client,), z=self.config.noise))
        return upload

    def _record(self, release: Release) -> None:
        if release not in self._budget():
            append_line(self.place / ACCOUNT, release.model_dump_json().encode())

    def _budget(self) -> Budget:
        path = self.place / ACCOUNT
        if not path.exists():
            return Budget(self.config)
        try:
            rows = [parse_json(path, line) for line in whole_lines(path)]
            return Budget(self.config, [Release.model_validate(row) for row in rows])
        except ValidationError as error:
            raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None

    def _key(self, whose: str) -> bytes:
        return kept_key(self.place / NOISE_KEY, released=len(self._budget()) > 0)
