"""A log of the job, a line for each committed step, written by the worker that is main at the time.

Every worker remembers its last steps. Whoever becomes main looks at what the file has, and begins with what is missing: a
step that was applied and not written when a worker was preempted is written by the next one, and none is written twice. The file
must be one that all workers see; where each has its own, each has a part of the lines."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Union

_KEPT = 64  # steps that a worker remembers
_TAIL = 1 << 16

Sink = Union[str, "os.PathLike[str]", Callable[[Dict[str, Any]], None]]


def last_step(path: Path) -> int:
    """Of the last whole line; a torn one at the end is cut off."""
    try:
        with open(path, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            whole = tail[: tail.rfind(b"\n") + 1]
            if len(whole) != len(tail):
                file.truncate(size - len(tail) + len(whole))
    except FileNotFoundError:
        return 0
    for line in reversed(whole.splitlines()):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


class StepLog:
    """Where the records go: a file of JSON lines, or a function."""

    def __init__(self, sink: Sink) -> None:
        self._call = sink if callable(sink) else None
        self._path = None if callable(sink) else Path(sink)
        self._recent: Deque[Dict[str, Any]] = deque(maxlen=_KEPT)
        self._main = False
        self._written = 0

    def note(self, record: Dict[str, Any], main: bool) -> None:
        """A step was committed."""
        self._recent.append(record)
        if main and not self._main:
            if self._path is not None and record["step"] == 1:
                self._begin_anew(self._path)
            self._written = last_step(self._path) if self._path is not None else record["step"] - 1
        self._main = main
        if main:
            self._write()

    @staticmethod
    def _begin_anew(path: Path) -> None:
        """Before the first step: what is there is an earlier run's, whose steps are not this one's."""
        if last_step(path) > 0:
            os.replace(path, path.with_name(path.name + ".before"))

    def _write(self) -> None:
        new = [r for r in self._recent if r["step"] > self._written]
        if not new:
            return
        if self._call is not None:
            for record in new:
                self._call(record)
        elif self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:  # one write: lines of two workers do not mix
                file.write("".join(json.dumps(record) + "\n" for record in new))
        self._written = new[-1]["step"]


__all__ = ["Sink", "StepLog", "last_step"]

