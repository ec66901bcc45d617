"""One run of a sweep, in the process that calls: a child's, or the user's own."""

import tomllib

from pfedes.config import validate
from pfedes.errors import FailedRunError, PfedesError
from pfedes.federation.listener import Listener
from pfedes.federation.loop import Federation, Selector, uniform
from pfedes.imports import kind_text_and_place
from pfedes.sweep.child import CellRequest, CellResult


def carry_out(
    request: CellRequest, *, select: Selector = uniform, listener: Listener | None = None
) -> CellResult:
    """Begins or continues one run, to its end. A fault in one must not take the others with it."""
    try:
        if request.config:
            config = validate(tomllib.loads(request.config))
            Federation(config, out=request.directory, select=select, listener=listener).run()
        else:
            Federation.resume(
                request.directory,
                rounds=request.rounds,
                data_dir=request.data_dir or None,
                select=select,
                listener=listener,
            ).run()
    except FailedRunError as error:
        return CellResult(error.what, failed=True)  # who began the sweep knows how it continues
    except PfedesError as error:
        return CellResult(str(error))
    except Exception as error:
        return CellResult(kind_text_and_place(error), failed=True)
    return CellResult()
