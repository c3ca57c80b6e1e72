"""What the engine tells a program to do, in the words of a shell.

Which class an error has says which of its remedies is for programs; the engine's own sentence stays around it.
"""

from __future__ import annotations

from promptkit.errors import (
    AuthenticationError,
    CredentialError,
    InputError,
    InvalidRequestError,
    MissingProfileError,
    TemplateError,
)

WORDS: tuple[tuple[type[Exception], str, str], ...] = (
    (CredentialError, ", or give RunRequest(credential=Secret(...))", ""),
    (AuthenticationError, "RunRequest.credential, or the environment variable", "the environment variable"),
    (MissingProfileError, "RunRequest(profile=...)", "--profile ID"),
    (TemplateError, "RunRequest(session_id=...)", "--session-id TEXT"),
    (TemplateError, "add it to the request's variables", "give it with --var or --json-var"),
    (TemplateError, "add it to the request's inputs", "give it with --input"),
    (InputError, "add it to the request's inputs", "give it with --input"),
    (
        InputError,
        "give text as str, or a path object whose name tells the kind, or a FilePart in appended_messages",
        "give it as a file whose name tells its kind",
    ),
    (InputError, ", or give a FilePart in appended_messages", ""),
    (InputError, " or give a FilePart in appended_messages", ""),
    (InvalidRequestError, "RunRequest.variables.", "the variable "),
    (InvalidRequestError, "RunRequest.inputs.", "the input "),
)


def in_a_shell(error: BaseException) -> str:
    """Give the sentence of an error for a person at a shell."""
    sentence = str(error)
    for kind, programs, shells in WORDS:
        if isinstance(error, kind):
            sentence = sentence.replace(programs, shells)
    return sentence
