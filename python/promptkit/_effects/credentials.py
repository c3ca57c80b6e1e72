"""Where the key of a run comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from returns.result import Failure, Result, Success

from promptkit._values.secret import Secret
from promptkit.errors import CredentialError

if TYPE_CHECKING:
    from promptkit._values.definitions import Backend


def resolve_credential(backend: Backend, given: Secret | None) -> Result[Secret | None, CredentialError]:
    """Choose the key: the request's, else the environment variable's, else none if the backend needs none."""
    if given is not None or backend.credential_env is None:
        return Success(given)
    value = os.environ.get(backend.credential_env)
    where = f"the environment variable {backend.credential_env}"
    if value is None:
        return Failure(
            CredentialError(
                f"backend {backend.id!r} needs a key: set {where}, or give RunRequest(credential=Secret(...))"
            )
        )
    try:
        return Success(Secret(value))
    except CredentialError as error:
        return Failure(CredentialError(f"{where} of backend {backend.id!r}: {error}"))
