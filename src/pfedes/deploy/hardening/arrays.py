"""No arrays in messages: ours are bytes.

FLARE fetches arrays of any size from any address that a message names, and unpacks them before
pfedes can check them.
"""

from typing import Any, NoReturn

import numpy as np
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.class_loader import get_class_name
from nvflare.fuel.utils.fobs import dots
from nvflare.fuel.utils.fobs import fobs as registry
from nvflare.fuel.utils.fobs.datum import Datum, DatumManager

from pfedes.errors import WireError


class NoArrays(fobs.Decomposer):  # type: ignore[misc]  # FLARE has no types
    """Neither sends, nor takes in, nor fetches arrays."""

    def supported_type(self) -> type:
        return np.ndarray

    def supported_dots(self) -> list[int]:
        return [dots.NUMPY_DOWNLOAD]

    def decompose(self, target: Any, manager: DatumManager = None) -> NoReturn:
        raise WireError("arrays do not travel: send bytes")

    def recompose(self, data: Any, manager: DatumManager = None) -> NoReturn:
        raise WireError("arrays are not taken in")

    def process_datum(self, datum: Datum, manager: DatumManager) -> NoReturn:
        raise WireError("arrays are not fetched")


def refuse_arrays() -> None:
    """In this process, whether or not FLARE has registered its own handling before."""
    arrays = NoArrays()
    registry._decomposers[get_class_name(np.ndarray)] = arrays
    registry._dot_handlers[dots.NUMPY_DOWNLOAD] = arrays
