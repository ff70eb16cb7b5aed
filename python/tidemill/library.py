"""libtidemill through ctypes: the structs and functions of include/tidemill.h, nothing more."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
from pathlib import Path
from typing import List, Optional

from tidemill.errors import LibraryMissing

ABI = 1

STEP, APPLY = 1, 2


class Options(ctypes.Structure):
    """struct tidemill_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("coordinator", ctypes.c_char_p),
        ("listen", ctypes.c_char_p),
        ("token", ctypes.c_char_p),
        ("kernel_class", ctypes.c_char_p),
        ("tls_folder", ctypes.c_char_p),
        ("copy_folder", ctypes.c_char_p),
        ("job", ctypes.c_uint64),
        ("instance", ctypes.c_uint64),
        ("incarnation", ctypes.c_uint64),
        ("anchor", ctypes.c_int),
        ("copy_bytes_max", ctypes.c_uint64),
        ("endpoint", ctypes.c_char_p),
        ("token_file", ctypes.c_char_p),
        ("fingerprint", ctypes.c_char_p),
    ]


LayerBytes = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32)
InitLayer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
LayerMemory = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64)
DropLayer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
MoveLayer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)

Cancelled = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
AdvanceLayer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double,
                                ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)


class Engine(ctypes.Structure):
    """struct tidemill_engine: what the library calls."""

    _fields_ = [
        ("context", ctypes.c_void_p),
        ("layer_bytes", LayerBytes),
        ("init_layer", InitLayer),
        ("layer_memory", LayerMemory),
        ("drop_layer", DropLayer),
        ("read_layer", MoveLayer),
        ("write_layer", MoveLayer),
        ("cancelled", Cancelled),
        ("gradient_bytes", LayerBytes),
        ("read_gradient", MoveLayer),
        ("advance_layer", AdvanceLayer),
        ("take_layer", MoveLayer),
    ]


class Peer(ctypes.Structure):
    """struct tidemill_peer."""

    _fields_ = [
        ("instance", ctypes.c_uint64),
        ("pipeline", ctypes.c_uint32),
        ("stage", ctypes.c_uint32),
        ("address", ctypes.c_char_p),
        ("endpoint", ctypes.c_char_p),
    ]


class Work(ctypes.Structure):
    """struct tidemill_work."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("generation", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("norm", ctypes.c_double),
        ("pipeline", ctypes.c_uint32),
        ("pipelines", ctypes.c_uint32),
        ("stage", ctypes.c_uint32),
        ("stages", ctypes.c_uint32),
        ("first_layer", ctypes.c_uint32),
        ("last_layer", ctypes.c_uint32),
        ("first_micro_batch", ctypes.c_uint32),
        ("last_micro_batch", ctypes.c_uint32),
        ("peers", ctypes.POINTER(Peer)),
        ("peer_count", ctypes.c_size_t),
        ("stage_first", ctypes.POINTER(ctypes.c_uint32)),
        ("micro_batch_first", ctypes.POINTER(ctypes.c_uint32)),
    ]


class Norm(ctypes.Structure):
    """struct tidemill_norm: a layer's share of the squared norm."""

    _fields_ = [("layer", ctypes.c_uint32), ("sum", ctypes.c_double)]


class Abi(ctypes.Structure):
    """What tidemill_abi returns: a number that grows when meanings change, and the sizes of the structs."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("number", "options", "engine", "peer", "work", "norm")]


def _installed() -> List[str]:
    """Libraries that the system's loader or pkg-config finds."""
    system = ctypes.util.find_library("tidemill")
    if system:
        return [system]
    try:
        asked = subprocess.run(["pkg-config", "--variable=libdir", "libtidemill"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    path = os.path.join(asked.stdout.strip(), "libtidemill.so")
    return [path] if asked.returncode == 0 and os.path.exists(path) else []


def _candidates() -> List[str]:
    here = Path(__file__).resolve().parent
    named = os.environ.get("TIDEMILL_LIBRARY")
    if named:
        return [named]
    found = [str(here / "libtidemill.so")]
    found += [str(folder / "build" / "release" / "libtidemill.so") for folder in here.parents[1:2]]
    return [path for path in found if os.path.exists(path)] or _installed()


def _declare(lib: ctypes.CDLL) -> None:
    handle = ctypes.c_void_p
    lib.tidemill_open.restype = handle
    lib.tidemill_open.argtypes = [ctypes.POINTER(Options), ctypes.POINTER(Engine), ctypes.c_char_p, ctypes.c_size_t]
    lib.tidemill_options_from_environment.argtypes = [ctypes.POINTER(Options), ctypes.c_char_p, ctypes.c_size_t]
    lib.tidemill_close.restype = None
    lib.tidemill_close.argtypes = [handle]
    lib.tidemill_next.argtypes = [handle, ctypes.POINTER(Work)]
    lib.tidemill_cancelled.argtypes = [handle]
    lib.tidemill_held.argtypes = [handle, ctypes.c_uint64, ctypes.POINTER(Norm), ctypes.c_size_t]
    lib.tidemill_applied.argtypes = [handle, ctypes.c_uint64]
    lib.tidemill_report_metric.restype = None
    lib.tidemill_report_metric.argtypes = [handle, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_double]
    lib.tidemill_report_loss.restype = None
    lib.tidemill_report_loss.argtypes = [handle, ctypes.c_uint64, ctypes.c_double]
    lib.tidemill_computed.restype = None
    lib.tidemill_computed.argtypes = [handle, ctypes.c_uint64, ctypes.c_uint64]
    lib.tidemill_failed.restype = None
    lib.tidemill_failed.argtypes = [handle, ctypes.c_char_p]
    lib.tidemill_reason.restype = ctypes.c_char_p
    lib.tidemill_reason.argtypes = [handle]
    lib.tidemill_waiting_for.restype = None
    lib.tidemill_waiting_for.argtypes = [handle, ctypes.c_uint64]
    numbers = ctypes.POINTER(ctypes.c_uint64)
    lib.tidemill_sample_items.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, numbers]
    lib.tidemill_sample_keys.restype = None
    lib.tidemill_sample_keys.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_uint16, numbers]


def check_abi(lib: ctypes.CDLL, path: str) -> None:
    """Refuses a library whose structs differ from those in this file."""
    if not hasattr(lib, "tidemill_sample_keys"):
        raise LibraryMissing(f"{path} is older than this package: build and install both from one source")
    lib.tidemill_abi.restype = Abi
    lib.tidemill_abi.argtypes = []
    theirs = lib.tidemill_abi()
    ours = {"number": ABI}
    ours.update({k: ctypes.sizeof(t) for k, t in
                 (("options", Options), ("engine", Engine), ("peer", Peer), ("work", Work), ("norm", Norm))})
    for key, value in ours.items():
        grown = key == "options" and getattr(theirs, key) > value  # fields it has at the end are as if 0
        if getattr(theirs, key) != value and not grown:
            raise LibraryMissing(f"{path} does not match this package (its {key} is {getattr(theirs, key)}, expected "
                                 f"{value}): build and install both from one source")


_loaded: Optional[ctypes.CDLL] = None


def load() -> ctypes.CDLL:
    """Loads the library once and checks it."""
    global _loaded
    if _loaded is not None:
        return _loaded
    paths = _candidates()
    if not paths:
        raise LibraryMissing("libtidemill.so was not found, neither beside this package nor in build/release, nor by ldconfig "
                             "or pkg-config: run make in Tidemill's source and pip install ./python again, or make install, "
                             "or set TIDEMILL_LIBRARY to the file")
    try:
        lib = ctypes.CDLL(paths[0])
    except OSError as error:
        raise LibraryMissing(f"cannot load {paths[0]}: {error} (it needs protobuf-c, xxhash and OpenSSL 3: on Debian "
                             "libprotobuf-c1 libxxhash0 libssl3)") from error
    check_abi(lib, paths[0])
    _declare(lib)
    _loaded = lib
    return lib
