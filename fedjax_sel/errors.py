"""The one exception for anything a user can mend."""


class UserError(ValueError):
    """Bad input: its message is one sentence that says what is wrong and what to do next (exit code 2)."""
