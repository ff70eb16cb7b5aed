"""Tidemill's exceptions."""


class TidemillError(Exception):
    """Base class of Tidemill's exceptions."""


class UsageError(TidemillError):
    """The script or its settings are wrong; the message says what to change."""


class LibraryMissing(TidemillError):
    """libtidemill.so was not found, or has another version."""


class Refused(TidemillError):
    """The coordinator refused this worker."""


class JobFailed(TidemillError):
    """The job itself is wrong, here or on another worker; it is not retried."""
