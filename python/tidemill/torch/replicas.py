"""Whether all workers have the same committed state, and the same data: looked at with every step.

The layers that workers exchange are compared by hash when they move; this is for what goes apart afterwards. A function given to
job.on_commit that does something on the main worker alone (`if job.is_main: ema.update(model)`) changes a part of the job's state that
all others have as well. What the optimizer's groups say, the schedule's state, the script's own state, and which weights and tensors such a function has
changed are told by every worker that knows them, as numbers (tidemill.torch.agreement).
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from tidemill.errors import UsageError
from tidemill.torch.agreement import NEAR, NEAR_SAMPLES, Agreement, mark_of, mark_of_plain
from tidemill.torch.guards import some_of

ITEMS, ORDER = "items", "order"
SAMPLES = ("sample 0", "sample 1")
_SIZES = tuple(f"{name}'s size" for name in SAMPLES)
_SCHEDULE, _STATE, _MEASURED, _CHANGED, _VALUES = "schedule", "state", "measured", "changed", "values"
_OTHERS = "other settings"
_ROOM = 160  # of the samples' numbers as text
_SAMPLED = 64  # elements of each tensor that is looked at
_ALWAYS, _EVERY = 20, 10  # on a GPU, which has to be waited for: in the first steps, and then in every so many

_ALONE = ("a function given to job.on_commit, or another hook, did that on some workers alone (`if job.is_main:`), or computed it from what each "
          "worker has of its own (the time, its rank, what it has measured by itself). What is done there is part of the step: do it on every worker, from "
          "(step, loss) and the job's state; what only one should do, and changes nothing, belongs in job.after_step")


OTHER_SAMPLES = ("the order or the content of the data set depends on the process. Where files are listed (os.listdir, glob, Path.iterdir) say sorted(...); a "
                 "set of texts, or hash(), has another order in every process (sorted(...), or PYTHONHASHSEED=0 for all); random.shuffle, random_split or "
                 "train_test_split before tidemill.torch.init need a seed that is not the time; WebDataset's shuffle draws from the time, too: "
                 ".shuffle(size, rng=random.Random(0)); what a data set changes or keeps while it is used (a cache of augmented samples, a level) must be the same "
                 "everywhere. Where samples are not the same twice, and you want that, say try_twice=False to init")


def _settings_of(notes: Mapping[str, Any]) -> Dict[str, List[Any]]:
    """What all groups say, by key."""
    out: Dict[str, List[Any]] = {}
    for number, group in enumerate(notes["groups"]):
        for key, value in group["#dict"]:
            out.setdefault(str(key), []).append([number, value])
    return out


def _loosely(value: Any, measured: Optional[List[float]]) -> Any:
    """State that was loaded may have lists for tuples, and 3.0 for 3. measured: gets what may differ by rounding; None: nothing may."""
    if isinstance(value, dict):
        kind, content = next(iter(value.items()), ("", None))
        return _loosely(content, measured) if kind == "#tuple" else {key: _loosely(one, measured) for key, one in value.items()}
    if isinstance(value, list):
        return [_loosely(one, measured) for one in value]
    if isinstance(value, float) and measured is not None and math.isfinite(value) and value != int(value):
        measured.append(abs(value))
        return "measured"
    return float(value) if isinstance(value, (bool, int)) and abs(value) < 1 << 53 else value


class Seen:
    """Samples of the first step, or the first item of a stream's last step, as part of the job's state: a process that comes when all others are gone can
    compare, too. It follows from the step alone, as all state does."""

    def __init__(self) -> None:
        self.step = 0
        self.numbers: Dict[str, float] = {}  # by name
        self._following: Optional[Tuple[int, Dict[str, float]]] = None

    def note(self, step: int, numbers: Dict[str, float]) -> None:
        """What all workers have agreed on; it counts once the step is committed."""
        self._following = (step, numbers) if numbers else None

    def commit(self, step: int) -> None:
        """With the step."""
        if self._following is not None and self._following[0] == step:
            self.step, self.numbers = self._following
        self._following = None

    def after(self) -> Dict[str, Any]:
        """What state_dict will give once the step is committed."""
        step, numbers = (self.step, self.numbers) if self._following is None else self._following
        return {"step": step, "numbers": json.dumps(numbers).ljust(_ROOM)}

    def forget(self) -> None:
        """Another job's."""
        self.step, self.numbers, self._following = 0, {}, None

    def differs(self, name: str, seen: Any) -> bool:
        """seen: what there is now, where anything is known of it."""
        if seen is None or name not in self.numbers:
            return False
        mark, size = seen.numbers
        told = self.numbers.get(f"{name}'s size", size)
        return mark != int(self.numbers[name]) or abs(size - told) > NEAR_SAMPLES * abs(told)

    def state_dict(self) -> Dict[str, Any]:
        """Of the last commit, of one size."""
        return {"step": self.step, "numbers": json.dumps(self.numbers).ljust(_ROOM)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What state_dict gave."""
        self.step, self.numbers, self._following = int(state["step"]), json.loads(state["numbers"]), None


class Replicas:
    """One worker's side of the comparison."""

    def __init__(self, state: Any, bitwise: bool, seen: Seen) -> None:
        self._state, self._bitwise, self._seen = state, bitwise, seen
        self._keys = sorted(_settings_of(state.shared_notes()))
        names = [f"setting {key}" for key in self._keys]
        self.agreement = Agreement([ITEMS, ORDER, *SAMPLES, *_SIZES, _SCHEDULE, _STATE, _MEASURED, _CHANGED, _VALUES, *names, _OTHERS])
        self._before: Optional[Tuple[List[Any], List[Any]]] = None
        self._changed: List[str] = []
        self._hooks: Optional[Tuple[int, Optional[float]]] = None  # of the last commit; None: not known here

    # -- what functions change --

    def before_hooks(self) -> None:
        """A step was applied; what comes now is the script's."""
        watch = self._state.watch
        self._before = (watch.versions(), watch.moments())

    def after_hooks(self, step: int) -> None:
        """What they have changed, and what is there now."""
        if self._before is None:
            return
        watch, tensors = self._state.watch, {}
        tensors.update(watch.changed_since(*self._before))
        tensors.update(self._state.extras.changed_tensors())
        self._before = None
        self._changed = sorted(tensors)
        self._hooks = (mark_of(*(name.encode() for name in self._changed)), self._value_of([tensors[name] for name in self._changed], step))

    def _value_of(self, tensors: Sequence[torch.Tensor], step: int) -> Optional[float]:
        if any(t.is_cuda for t in tensors) and step > _ALWAYS and step % _EVERY:
            return None
        some = [some_of(t, _SAMPLED).reshape(-1) for t in tensors if t.numel() and not t.is_complex()]
        if not some:
            return 0.0
        flat = torch.cat([one.to(some[0].device, torch.float64) for one in some]).cpu()
        if self._bitwise:
            return float(mark_of(flat.numpy().tobytes()))
        return float(torch.nan_to_num(flat).abs().sum())

    def joined(self) -> None:
        """The state is another worker's: what functions did to it is not known here."""
        self._hooks = None

    # -- with a step --

    def say(self, cells: torch.Tensor, items: float, marks: Mapping[str, Any]) -> None:
        """cells: this worker's share of the exchange. items: of the data set. marks: of its source."""
        told, state = self.agreement, self._state
        told.forget()
        told.say(ITEMS, items)
        told.say(ORDER, marks.get(ORDER))
        for name, size in zip(SAMPLES, _SIZES):
            seen = marks.get(name)
            if seen is not None:
                told.say(name, seen.numbers[0])
                told.say(size, seen.numbers[1], NEAR_SAMPLES)
        notes = state.committed_notes()
        if notes is not None:
            settings = _settings_of(notes)
            told.say(_SCHEDULE, mark_of_plain(notes["schedule"]))
            measured: Optional[List[float]] = None if self._bitwise else []
            told.say(_STATE, mark_of_plain(_loosely(state.extras.compared(notes.get("extras") or {}), measured)))
            told.say(_MEASURED, sum(measured) if measured else None, NEAR)
            for key in self._keys:
                told.say(f"setting {key}", mark_of_plain(settings.pop(key, None)))
            told.say(_OTHERS, mark_of_plain(settings))
        if self._hooks is not None:
            told.say(_CHANGED, self._hooks[0])
            told.say(_VALUES, self._hooks[1], 0.0 if self._bitwise else NEAR)
        told.put(cells)

    def check(self, cells: torch.Tensor, step: int, items: Optional[int]) -> None:
        """All have said theirs."""
        odd = next(iter(self.agreement.odd(cells)), None)
        if odd is not None:
            raise UsageError(self._text(odd, step, items))
        if items is not None and step > 1:
            return  # what is kept of numbered samples is of the first step, so that it is the same whoever came and went
        told = self.agreement.heard(cells)
        self._seen.note(step, {name: told[name] for name in (*SAMPLES, *_SIZES) if name in told})

    def _text(self, odd: str, step: int, items: Optional[int]) -> str:
        if odd == ITEMS:
            return (f"the data set has {items} items here, and another number on another worker: every worker needs all of it, "
                    "in one order, and computes its own micro-batches. Leave out what shares it out by rank (Subset, split, a "
                    "sampler), and look whether the files are the same on every machine")
        if odd == ORDER:
            return (f"the sampler gives another order in step {step} here than on another worker: it depends on the process (random numbers that were drawn "
                    "before tidemill.torch.init, weights by hash() or a set of texts, the time). Compute it from the epoch (set_epoch) and from torch's, Python's "
                    "or NumPy's random numbers, in its __iter__")
        if odd in SAMPLES or odd in _SIZES:
            return f"a sample of step {step} is another one here than on another worker, though it has the same number: {OTHER_SAMPLES}"
        before = f"before step {step} the committed state of this worker is another one than that of another worker: "
        if odd == _SCHEDULE:
            return before + f"the state of the schedule ({type(self._state.scheduler).__name__}). Very likely {_ALONE}"
        if odd in (_STATE, _MEASURED):
            return before + f"what state_dict() of attach(state=...) gives ({', '.join(self._state.extras.names())}). Very likely {_ALONE}"
        if odd in (_CHANGED, _VALUES):
            what = f"{', '.join(self._changed[:3])}{' and others' if len(self._changed) > 3 else ''} here" if self._changed else "nothing here"
            return before + f"of weights and other tensors there has changed, after the optimizer's step, {what}. Very likely {_ALONE}"
        key = odd[len("setting "):] if odd.startswith("setting ") else ""
        values = [group.get(key) for group in self._state.optimizer.param_groups if key in group]
        what = f"{key!r} of the optimizer's parameter groups ({', '.join(map(repr, values[:4]))} here)" if key else "the optimizer's parameter groups"
        return before + f"{what}. Very likely {_ALONE}"


__all__ = ["ITEMS", "ORDER", "OTHER_SAMPLES", "SAMPLES", "Replicas", "Seen"]
