"""The two ways in which a command ends badly without being a bug."""


class RecipeError(Exception):
    """Something that the user can fix: shown as one line, exit code 2.

    The message names the file, the key, what was found and what to write instead.
    """


class RunError(Exception):
    """A run that started and could not go on: shown as one line, exit code 1."""
