"""Imports users' own functions by name: `package.module:function` or `file.py:function`."""

import importlib.util
import itertools
import sys
import sysconfig
import traceback
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from pfedes.errors import ConfigError, kind_and_text, said, unknown
from pfedes.files import at_home

SOURCES = ("folder", "hf", "synthetic", "csv", "parquet", "npz")
"""The prefixes of our own names of data, before the colon."""


def is_own(name: str) -> bool:
    """Whether a name is one of the user's, not one of ours (`folder:` and `hf:` are ours)."""
    module, function = _parts(name)
    return bool(module) and function.isidentifier() and module not in SOURCES


def _parts(name: str) -> tuple[str, str]:
    """Module and function. Tests and imports of a name must use this, so that they agree."""
    module, _, function = name.rpartition(":")
    return module, function


def absolute(name: str, directory: Path) -> str:
    """The name with a file's whole path, so that it means the same from anywhere."""
    module, function = _parts(name)
    if not (is_own(name) and module.endswith(".py")):
        return name
    return f"{(directory / at_home(module)).absolute()}:{function}"


def resolved(name: str) -> str:
    """The name with a file's true path, without links and dots."""
    module, function = _parts(name)
    return f"{Path(module).resolve()}:{function}" if module.endswith(".py") else name


def without_directory(name: str) -> str:
    """The name with a file's own name in the place of its whole path."""
    module, function = _parts(name)
    if not (is_own(name) and module.endswith(".py")):
        return name
    return f"{Path(module).name}:{function}"


def own_function(name: str, key: str) -> Callable[..., Any]:
    """The function that `key = name` names.

    Modules must be installed or on PYTHONPATH; a file is named by its path. The present directory
    is not searched.
    """
    module, function = _parts(name)
    try:
        home = _file(Path(module)) if module.endswith(".py") else import_module(module)
    except Exception as error:  # importing runs the module, which may raise anything
        remedy = "" if module.endswith(".py") else "; a file is named 'file.py:function'"
        raise ConfigError(
            f"{key} = {name!r} cannot be imported: {kind_and_text(error)}{remedy}"
        ) from None
    found = getattr(home, function, None)
    if found is None:
        functions = [n for n, f in vars(home).items() if isfunction(f)]
        raise ConfigError(f"{key} = {name!r}: {unknown('function', function, functions)}")
    if not callable(found):
        raise ConfigError(f"{key} = {name!r} is a {type(found).__name__}: name a function")
    return found  # type: ignore[no-any-return]  # callable() tells a checker no signature


def _file(path: Path) -> ModuleType:
    """A file as a module, loaded once, under a name that is its own."""
    name = f"pfedes_own_{sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file always has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look themselves up there
    # What it imports may lie beside it, as for a script.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def imported(kind: str, name: str) -> Any:
    """The object that `module:name` names.

    A configuration may come from anywhere, so only what you installed, or put on PYTHONPATH, is
    imported; never a file that merely lies in the present directory.
    """
    if not is_own(name):
        raise ConfigError(f"{kind} {name!r} is not of the form 'package.module:name'")
    if name in _of_this_program:
        return _of_this_program[name]
    module, attribute = _parts(name)
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{kind} {name!r} cannot be imported: {said(error)}; install it, or name its directory "
            "in PYTHONPATH"
        ) from None
    except Exception as error:  # importing runs the module, which may raise anything
        raise ConfigError(f"{kind} {name!r} cannot be imported: {said(error)}") from None


_of_this_program: dict[str, Any] = {}
"""Functions of a notebook or a script, which no other process can import."""
THIS_PROGRAM = "__main__"


def name_of(function: Any) -> str:
    """A name by which `imported` finds the function again, here or in other processes.

    What a notebook or a script defines is known in this process alone: `is_of_this_program`.
    """
    module, name = str(getattr(function, "__module__", "")), getattr(function, "__qualname__", "")
    if module != THIS_PROGRAM and getattr(sys.modules.get(module), name, None) is function:
        return f"{module}:{name}"
    plain = name if name.isidentifier() else ""
    base = f"{THIS_PROGRAM}:{plain or 'function'}"
    # A cell that runs again defines its function again. What has no name of its own, such as a
    # lambda, is told apart from others by a number.
    numbered = (f"{base}_{number}" for number in itertools.count(2))
    names = [base] if plain else itertools.chain([base], numbered)
    found = next(n for n in names if plain or _of_this_program.get(n, function) is function)
    _of_this_program[found] = function
    return found


def is_of_this_program(name: str) -> bool:
    """Whether a name stands for a function that no other process can import."""
    return name in _of_this_program


PACKAGE = Path(__file__).parent
"""The directory of our own code."""
LIBRARIES = {
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    *(place for place in sys.path if place.endswith("site-packages")),
}


def place_of(error: Exception) -> str:
    """The file's name and line in the user's own code at which an exception was raised.

    Frames of this package and of installed libraries are passed over, unless there are no others.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    for frame in reversed(own or frames):
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def _is_library(file: str) -> bool:
    place = Path(file)
    return place.is_relative_to(PACKAGE) or any(map(place.is_relative_to, LIBRARIES))


def kind_text_and_place(error: Exception) -> str:
    """An exception of foreign code in one line that tells where to look."""
    place = place_of(error)
    return f"{kind_and_text(error)} ({place})" if place else kind_and_text(error)
