"""A participant's own part of `[privacy]`: a key, a record of its releases, and its own limit.

Both files lie in its `state`, independent of the coordinator:

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

    def check(self, client: str, run: str, round: int) -> None:
        """Raises a BudgetError if another release would cost more than allowed, or than promised.

        One that is in the account costs nothing when it is made once more, after a kill: whether
        it is the same, `leaving` sees.
        """
        if not any((r.run, r.round) == (run, round) for r in self._releases()):
            self._check_next(client, run)

    def _check_next(self, client: str, run: str) -> None:
        """Refuses a release that exceeds the kit's epsilon for a run.

        With the participant's own noise, no other party has to be trusted for that.
        """
        if self.config.mode in ("local", "distributed"):
            self._check_promise(client, run)
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
        """The noisy upload that the participant sends; it is recorded before it is returned."""
        if not self.config.noisy:
            return upload
        mechanism = self.mechanism(run)
        # With the run: its noise is another, though the same change may come again.
        change = digest_of({client: mechanism.clipped(upload, download)})
        inputs = sha256(f"{run} {change}".encode()).hexdigest()
        if self.config.mode == "local":
            upload = mechanism.noised(client, round, upload, download)
        if self.config.mode == "distributed":
            self._key(client)  # what is added to the summand later is made before it is counted
        noise = self.config.noise
        release = Release(round=round, inputs=inputs, clients=(client,), z=noise, run=run)
        self._check_noise(release)
        if release not in self._budget():
            self._check_next(client, run)
            append_line(self.place / ACCOUNT, release.model_dump_json().encode())
        return upload

    def _check_noise(self, release: Release) -> None:
        """Refuses to release a change with two noises.

        Where the kit leaves the noise open, a coordinator could ask for the same again with a
        little more or less of it, and again, and average what it gets.
        """
        for earlier in self._releases():
            if earlier.identity == release.identity and earlier.z != release.z:
                raise BudgetError(
                    f"the change of round {release.round} was released with noise of "
                    f"{earlier.z:g} x clip: it is not released with {release.z:g} x clip as well"
                )

    def _check_promise(self, client: str, run: str) -> None:
        spent = Budget(self.config, (r for r in self._releases() if r.run == run))
        if not spent.eligible([client]):
            raise BudgetError(
                f"{client} has spent epsilon {spent.epsilon(client):.2f} of the "
                f"{self.config.epsilon:g} that the kit promises for a run"
            )

    def mechanism(self, run: str) -> Mechanism:
        """The mechanism of a run, with the participant's own noise."""
        return Mechanism(self.config, self.least_uploads, self._key, run)

    def _budget(self) -> Budget:
        return Budget(self.config, self._releases())

    def _releases(self) -> list[Release]:
        path = self.place / ACCOUNT
        if not path.exists():
            return []
        try:
            rows = [parse_json(path, line) for line in whole_lines(path)]
            return [Release.model_validate(row) for row in rows]
        except ValidationError as error:
            raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None

    def _key(self, whose: str) -> bytes:
        return kept_key(self.place / NOISE_KEY, released=len(self._budget()) > 0)
