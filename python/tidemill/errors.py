"""What can go wrong, as exceptions."""


class TidemillError(Exception):
    """The root of all of ours."""


class UsageError(TidemillError):
    """The script or its settings are wrong; the text says what to change."""


class LibraryMissing(TidemillError):
    """libtidemill.so was not found, or has another version."""


class Refused(TidemillError):
    """The coordinator refused this worker."""


class JobFailed(TidemillError):
    """The job itself is wrong, here or on another worker; it is not retried."""
