"""The one exception for anything a user can mend."""

RAISED_BY_PLUGINS = (Exception, SystemExit)
"""What is caught around somebody's own code: `sys.exit()` in it must not end a command as if all were well."""


class UserError(ValueError):
    """Bad input: its message is one sentence that says what is wrong and what to do next (exit code 2)."""


class NonFiniteUpdateError(RuntimeError):
    """A client's update, or the server's step, held NaN or infinity, and the run stopped (exit code 3)."""


class DamagedRunError(RuntimeError):
    """A run folder holds checkpoints, and none of them is whole (exit code 4)."""
