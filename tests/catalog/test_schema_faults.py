"""What load_catalog says of schemas that cannot be used: everything, each at its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from promptkit import load_catalog
from promptkit.errors import InvalidConfigError

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = """profile = "p"
[[messages]]
role = "user"
content = "hi"
[output]
kind = "json_schema"
[output.schema]
type = "nope"
[output.schema.properties.a]
"$ref" = "#/a"
"""
SCHEMA = """{
"$ref": "#/$defs/a",
"$defs": {
  "b": {"$id": "http://h/i"},
  "c": {"$id": "http://h/i", "type": "nope"}
},
"not": {"$ref": "other.json"}
}"""


def test_every_fault_of_every_schema_is_told_with_its_line(tmp_path: Path) -> None:
    for name, text in {"promptkit.toml": "", "prompts/a.toml": PROMPT, "schemas/s.json": SCHEMA}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(tmp_path)
    found = [
        (fault.file, fault.line, fault.key) for fault in caught.value.faults if "usable JSON Schema" in fault.message
    ]
    assert found == [
        ("prompts/a.toml", 8, "output.schema.type"),
        ("prompts/a.toml", 10, 'output.schema.properties.a."$ref"'),
        ("schemas/s.json", 2, "/$ref"),
        ("schemas/s.json", 5, "/$defs/c/$id"),
        ("schemas/s.json", 5, "/$defs/c/type"),
        ("schemas/s.json", 7, "/not/$ref"),
    ]
