"""The one exception for mistakes a user can mend."""


class BCRLError(Exception):
    """A one-line message that names the file, the field, the value and the way out.

    The command line prints it without a traceback and exits with status 2.
    """
