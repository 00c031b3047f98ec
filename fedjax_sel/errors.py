"""Exceptions of the package, each with its own exit code."""

RAISED_BY_PLUGINS = (Exception, SystemExit)
"""Exceptions caught around plug-in code, with SystemExit: a plug-in's `sys.exit()` must not look like success."""


class UserError(ValueError):
    """Invalid input; a one-line message states the problem and the fix (exit code 2)."""


class NonFiniteUpdateError(RuntimeError):
    """A run stopped because a client's update or the server's step held NaN or infinity (exit code 3)."""


class DamagedRunError(RuntimeError):
    """A run folder whose checkpoints are all damaged (exit code 4)."""
