"""Generators of random numbers that the script made: found where scripts keep them, and seeded like torch's own.

A generator that goes on from where it was would draw other numbers on a worker that joins, or when a step is done again. So each is seeded
before a micro-batch, or an item, with numbers of its own. They are looked for in variables, attributes, containers, modules, closures,
defaults of functions, functools.partial, and in global variables that the script's functions name.
"""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
import types
from typing import Any, Iterator, List, Sequence, Set, Tuple

import torch

from tidemill.errors import UsageError

_DEPTH = 40  # how far a data set, or a script, is searched
_MOST = 20000  # things that are looked at, at most
_WIDTH = 64  # members of a container
_LIBRARIES = ("torch", "tidemill", "accelerate", "lightning", "pytorch_lightning", "transformers", "contextlib", "runpy")
_OPAQUE = ("numpy", "pandas", "pyarrow", "tidemill", "logging", "threading", "multiprocessing", "subprocess", "asyncio")
_INSTALLED = tuple({path for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")})


def script_frames() -> Iterator[Any]:
    """Frames of the script that called us, from the inside out."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _kinds() -> Tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    more = () if numpy is None else (numpy.random.Generator, numpy.random.RandomState)
    return (torch.Generator, random.Random, *more)


def _shared() -> List[Any]:
    """Those that seed_all seeds."""
    found: List[Any] = [torch.default_generator, getattr(random, "_inst", None)]
    if torch.cuda.is_initialized():
        found += torch.cuda.default_generators
    numpy = sys.modules.get("numpy")
    return found if numpy is None else [*found, getattr(numpy.random.mtrand, "_rand", None)]


def _is_script(code: Any) -> bool:
    """Is a function of the script's, or of a library that is not installed? Others name too much."""
    return isinstance(code, types.CodeType) and not code.co_filename.startswith((*_INSTALLED, "<frozen"))


def _named(function: types.FunctionType) -> List[Any]:
    """What a function can reach without being given it."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # still empty
            pass
    found = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if _is_script(function.__code__):
        there = function.__globals__
        found += [there[name] for name in function.__code__.co_names if name in there and not isinstance(there[name], types.ModuleType)]
    return found


def _attributes(thing: Any) -> List[Any]:
    found = list(getattr(thing, "__dict__", {}).values())
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            value = getattr(thing, name, None) if not name.startswith("__") else None
            found.append(value)
        found += [one for one in kind.__dict__.values() if isinstance(one, types.FunctionType) and _is_script(one.__code__)]
    return found


def _children(thing: Any) -> List[Any]:
    try:
        return _parts_of(thing)
    except Exception:  # noqa: BLE001  # a proxy of something that is not there (yet)
        return []


def _parts_of(thing: Any) -> List[Any]:
    if isinstance(thing, (str, bytes, int, float, complex, torch.Tensor, type, types.ModuleType, types.FrameType, types.CodeType)):
        return []
    if isinstance(thing, dict):
        return list(thing.values())[:_WIDTH]
    if isinstance(thing, (list, tuple)):
        return list(thing[:_WIDTH])
    if isinstance(thing, types.FunctionType):
        return _named(thing)
    if isinstance(thing, (types.MethodType, types.BuiltinMethodType)):
        return [thing.__self__, getattr(thing, "__func__", None)]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if type(thing).__module__.partition(".")[0] in _OPAQUE:
        return []
    return _attributes(thing)


class Generators:
    """Those that were found: each is seeded before a micro-batch, or an item, with numbers of its own."""

    def __init__(self) -> None:
        self.found: List[Any] = []
        self._left_out: List[Any] = []
        self._kinds, self._shared = _kinds(), _shared()

    def add(self, *things: Any) -> None:
        """Generators, or what may have some somewhere inside. In the order in which they are found, the nearest first."""
        self._kinds, self._shared = _kinds(), [*_shared(), *self._left_out]
        seen: Set[int] = {id(one) for one in self.found}
        kept: List[Any] = []  # so that no id comes twice
        level = list(things)
        for _ in range(_DEPTH):
            following: List[Any] = []
            for thing in level:
                if thing is None or id(thing) in seen or len(seen) > _MOST:
                    continue
                seen.add(id(thing))
                kept.append(thing)
                if issubclass(type(thing), self._kinds):  # proxies may say what they like of their class
                    self._take(thing)
                else:
                    following += _children(thing)
            level = following

    def _take(self, generator: Any) -> None:
        if isinstance(generator, random.SystemRandom):
            raise UsageError("the script has a random.SystemRandom, whose numbers come from the machine and cannot be seeded: they would be others on "
                             "every worker, and when a step is done again. Use random.Random")
        if all(generator is not other for other in self._shared):
            self.found.append(generator)

    def leave_out(self, generators: Sequence[Any]) -> None:
        """They have their own times: those of a stream, which goes on from item to item."""
        self._left_out += generators
        self.found = [one for one in self.found if all(one is not other for other in generators)]

    def add_from_script(self) -> None:
        """Those in variables of the script, and behind them."""
        for frame in script_frames():
            if not frame.f_code.co_filename.startswith(_INSTALLED):
                self.add(*(value for value in frame.f_locals.values() if not _is_data(value)),
                         *(value for value in frame.f_globals.values() if not _is_data(value)))

    def seed(self, key: int) -> None:
        """All of them, each differently."""
        for number, generator in enumerate(self.found):
            own = (key + 0x9E3779B97F4A7C15 * (number + 1)) & 0x7FFFFFFFFFFFFFFF
            if isinstance(generator, torch.Generator):
                generator.manual_seed(own)
            elif isinstance(generator, random.Random):
                generator.seed(own)
            elif hasattr(generator, "bit_generator"):
                generator.bit_generator.state = type(generator.bit_generator)(own).state
            else:
                generator.seed(own & 0xFFFFFFFF)


def _is_data(thing: Any) -> bool:
    """Loaders and data sets have their own times to be seeded; modules of Python are not searched."""
    return issubclass(type(thing), (types.ModuleType, torch.utils.data.DataLoader, torch.utils.data.Dataset, torch.utils.data.Sampler))


def generators_in(*things: Any) -> Generators:
    """Those of a data set, its transforms, and what it wraps."""
    out = Generators()
    out.add(*things)
    return out


__all__ = ["Generators", "generators_in", "script_frames"]
