"""Attackers that learn from clients with known secrets, and guess the secrets of others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pfedes.audit.intervals import Bools
from pfedes.audit.shadows import Numbers
from pfedes.audit.sights import BITS, Look

PENALTY = 0.01  # C of the logistic regression: few clients, many numbers
SHRINKAGE = 0.1
MOST_COLUMNS = 500  # that tell most; of bits, fewer: nearly all of thousands are chance
MOST_BITS = 20
TREES = 100


class Line:
    """Logistic regression and a linear discriminant together, on the columns that tell most.

    The first sums up what many numbers tell a little of. The second divides by how numbers vary
    together, and so finds what is hidden where clients hardly differ.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    def fit(self, rows: Numbers, truth: NDArray[Any]) -> "Line":
        self._columns = most_telling(rows, truth, self.most)
        found: list[Any] = [LogisticRegression(C=PENALTY, max_iter=300)]
        if np.unique(truth, return_counts=True)[1].min() > 1:  # one client alone does not vary
            found.append(LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRINKAGE))
        chosen = rows[:, self._columns]
        self._parts = [make_pipeline(StandardScaler(), part).fit(chosen, truth) for part in found]
        self._spreads = [float(np.std(p.decision_function(chosen))) or 1.0 for p in self._parts]
        self.classes = found[0].classes_
        return self

    def scores(self, rows: Numbers) -> Numbers:
        """Scores of each row: one number for two classes, else one for each class."""
        chosen = rows[:, self._columns]
        found: Numbers = np.sum(
            [
                part.decision_function(chosen) / spread
                for part, spread in zip(self._parts, self._spreads, strict=True)
            ],
            axis=0,
        )
        return found


def most_telling(rows: Numbers, truth: NDArray[Any], most: int) -> NDArray[np.int64]:
    """The columns whose means differ most between the classes, for how much they vary."""
    spread = rows.std(axis=0)
    between = np.zeros(rows.shape[1])
    for kind in np.unique(truth):
        among = truth == kind
        between += among.mean() * (rows[among].mean(axis=0) - rows.mean(axis=0)) ** 2
    told = np.divide(between, spread**2, out=np.zeros_like(between), where=spread > 0)
    columns: NDArray[np.int64] = np.sort(np.argsort(-told, kind="stable")[:most])
    return columns


def scores_of_classes(learn: Look, test: Look, truth: Bools) -> Numbers:
    """How much each client to be attacked looks as if it had each class (rows: clients)."""
    found = np.zeros((len(test.rows), truth.shape[1]))
    for label, have in enumerate(truth.T):
        if not have.any() or have.all():
            continue
        if learn.few:
            forest = RandomForestClassifier(TREES, random_state=0).fit(learn.rows, have)
            found[:, label] = forest.predict_proba(test.rows)[:, 1]
        else:
            found[:, label] = _line(learn).fit(learn.rows, have).scores(test.rows)
    return found


def guesses(learn: Look, test: Look, truth: Sequence[str]) -> list[str]:
    """Which of several things each client to be attacked is."""
    if len(set(truth)) == 1:
        return [truth[0]] * len(test.rows)
    if learn.few:
        forest = RandomForestClassifier(TREES, random_state=0).fit(learn.rows, truth)
        return [str(guess) for guess in forest.predict(test.rows)]
    line = _line(learn).fit(learn.rows, np.asarray(truth))
    scores = line.scores(test.rows)
    places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    return [str(line.classes[place]) for place in places]


def _line(view: Look) -> Line:
    return Line(MOST_BITS if view.name == BITS else MOST_COLUMNS)
