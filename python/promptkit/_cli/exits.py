"""The exit status of the command: what each one means, and which one an error ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit.errors import InputError, InvalidRequestError, PromptKitError

if TYPE_CHECKING:
    from promptkit import RunFinished

DONE = 0
FAILED = 1  # a backend's error, faults in a catalog, a file that cannot be read
WRONG_USE = 2  # an unknown id, a missing variable, a bad option: type something else
INVALID_OUTPUT = 3  # the model answered, and not as its contract asks
CANCELLED = 130  # 128 and SIGINT, as shells say it
STDOUT_CLOSED = 141  # 128 and SIGPIPE: what reads stdout has closed it


class StopError(Exception):
    """Ends a command with a sentence on stderr."""

    exit_status = FAILED
    json_type: str | None = None  # how JSON names it, where that is not the name of the class


class FailedError(StopError):
    """The command was right, and the work failed."""


class WrongUseError(StopError):
    """The command asks for something that there is not; the sentence says what to type."""

    exit_status = WRONG_USE


class RefusedError(WrongUseError):
    """The engine refused the request, and it is known what to type instead."""

    def __init__(self, refusal: PromptKitError, hint: str) -> None:
        """Hold what the engine said, and what to type."""
        super().__init__(str(refusal))
        self.refusal = refusal
        self.hint = hint


class UnfinishedError(StopError):
    """A run that was sent was given up; what it has cost until then is known from its last event."""

    def __init__(self, message: str, last: RunFinished | None = None) -> None:
        """Hold what the run was and used; None where none was begun, or its end was not seen."""
        super().__init__(message)
        self.run_id = None if last is None else last.run_id
        self.parent_run_id = None if last is None else last.parent_run_id
        self.attempts = None if last is None else last.attempts
        self.usage = None if last is None else last.usage


class TimedOutError(UnfinishedError):
    """The time that --timeout gave is over."""


class CancelledError(UnfinishedError):
    """Ctrl-C."""

    exit_status = CANCELLED
    json_type = "Interrupted"


class StdoutClosedError(Exception):
    """What reads stdout has closed it: nothing is left to do, and nothing to say."""


def exit_of(error: BaseException) -> int:
    """Say what a command ends with after an error."""
    match error:
        case StopError():
            return error.exit_status
        case StdoutClosedError():
            return STDOUT_CLOSED
        case InputError():
            return FAILED  # a file, and not how the command was typed
        case InvalidRequestError():
            return WRONG_USE
        case _:
            return FAILED
