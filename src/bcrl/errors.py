"""The one exception for mistakes a user can mend."""


class BCRLError(Exception):
    """A one-line message that names the file, the field, the value and the way out.

    The command line prints it without a traceback and exits with status 2.
    """


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and has stopped. `status` is the exit status of the program."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status
