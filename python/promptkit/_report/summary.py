"""What a trace says, as values that encode."""

from __future__ import annotations

from datetime import datetime

import msgspec

from promptkit._report.runs import Run
from promptkit._report.totals import Group, Totals
from promptkit.errors import Fault


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says, encodable.

    ``runs`` are in the order of the page: each is followed by those that continue it. ``faults`` are the first of the
    ``fault_count`` lines that could not be read, ``cut_off`` is the number of the last line if only its beginning was
    written, ``repeated`` counts events that said again what another had said, ``other_kinds`` and ``other_fields`` what
    a later version wrote.
    """

    file: str
    started: datetime
    ended: datetime
    totals: Totals
    by_prompt: tuple[Group, ...]
    by_profile: tuple[Group, ...]
    runs: tuple[Run, ...]
    faults: tuple[Fault, ...]
    fault_count: int
    cut_off: int | None
    repeated: int
    other_kinds: dict[str, int]
    other_fields: dict[str, int]
