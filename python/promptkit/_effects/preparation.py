"""The effectful frame of preparation: the one thing it waits for is the reading of input files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from returns.result import Failure, Result

from promptkit._effects.input_files import read_inputs
from promptkit._prepare.inputs import needed
from promptkit._prepare.pipeline import Prepared, complete
from promptkit._prepare.selection import Selection, select

if TYPE_CHECKING:
    from promptkit._effects.shared import Shared
    from promptkit._values.requests import RunRequest
    from promptkit.errors import InvalidRequestError


async def prepare(shared: Shared, request: RunRequest, namespace: str = "") -> Result[Prepared, InvalidRequestError]:
    """Prepare a request: the same way for ``prepare``, ``validate_request``, ``prepare_execution`` and ``run``."""
    selection = select(shared.definitions, request, namespace)
    if isinstance(selection, Failure):
        return selection
    return await prepare_selected(shared, request, selection.unwrap())


async def prepare_selected(
    shared: Shared, request: RunRequest, selection: Selection
) -> Result[Prepared, InvalidRequestError]:
    """Prepare what comes after selection."""
    wanted = needed(selection, request)
    if isinstance(wanted, Failure):
        return wanted
    contents = await read_inputs(wanted.unwrap(), shared.reader, shared.max_input_bytes)
    if isinstance(contents, Failure):
        return contents
    return complete(selection, request, contents.unwrap())
