"""A catalog with another backend than it was loaded with."""

from __future__ import annotations

from typing import Any

import msgspec

from promptkit._load_catalog import Catalog, definitions_of, with_replaced
from promptkit._values.definitions import Backend
from promptkit.errors import UnknownBackendError, listed, near


def with_backend(catalog: Catalog, backend_id: str, **changes: Any) -> Catalog:
    """Give a catalog in which some fields of a backend are others, such as its ``base_url`` or ``credential_env``.

    ``with_backend(load_catalog("."), "main", credential_env=None)`` needs no key. All else stays, the folders of a
    loaded catalog too: its inputs are found and its fragments included. The catalog given is not changed.

    Raises UnknownBackendError, TypeError for what is no field of a Backend, and InvalidConfigError for a value that is
    not allowed, or that a profile of the backend does not fit.
    """
    if not isinstance(catalog, Catalog):
        msg = f"with_backend: Expected a Catalog (load_catalog gives one), got `{type(catalog).__name__}`"
        raise TypeError(msg)
    backends = definitions_of(catalog).backends
    backend = backends.get(backend_id)
    if backend is None:
        meant = near(str(backend_id), backends)
        hint = "" if meant is None else f": did you mean {meant!r}?"
        msg = f"with_backend: there is no backend {backend_id!r}{hint} (the backends: {listed(backends)})"
        raise UnknownBackendError(msg)
    fields = [field.name for field in msgspec.structs.fields(Backend) if field.name != "id"]
    for name in changes:
        if name not in fields:
            meant = near(name, fields)
            why = "its profiles refer to it" if name == "id" else f"did you mean {meant!r}?" if meant else "see Backend"
            msg = f"with_backend: {name!r} is no field of a Backend that can change: {why}"
            raise TypeError(msg)
    return with_replaced(catalog, msgspec.structs.replace(backend, **changes))
