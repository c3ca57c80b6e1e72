"""Write the coordination machine's table into docs/reference/coordination.md, and the diagram that is drawn from it.

.venv/bin/python scripts/draw_coordination.py
"""

import re
from pathlib import Path

from promptkit import coordination

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "coordination.md"
CHOICES = ("request", "stop", "raised")


def rows():
    """Give the rows of the table: state, input, condition, command, next state."""
    lines = iter((coordination.__doc__ or "").splitlines())
    for line in lines:
        if line.split()[:1] == ["state"]:
            break
    for line in lines:
        if not line.strip():
            return
        yield re.split(r" {2,}", line.strip())


def table():
    head = ["state", "input", "condition", "command", "next state"]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * 5, *rows())]


def node(name):
    """Give the id of a state in the diagram: its name and what tells it apart, without what it carries."""
    return "_".join(re.findall(r"\w+", name.replace("(pending)", "")))


def ways():
    """Give each arrow: from, to, what is written on it."""
    for state, taken, condition, command, following in rows():
        reached = re.split(r"[,:]", following)[0]
        label = taken
        if condition != "-":
            label += f" [{condition}]"
        sources = [f"Deciding({choice})" for choice in CHOICES] if state == "Deciding(any)" else [state]
        for source in sources:
            yield source, reached, f"{label} / {command}"


def diagram():
    arrows = list(ways())
    names = dict.fromkeys(name for source, reached, _ in arrows for name in (source, reached))
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{name}" as {node(name)}' for name in names if "(" in name and node(name) != name]
    lines += ["    [*] --> Checking: start / Check"]
    lines += [f"    {node(source)} --> {node(reached)}: {label}" for source, reached, label in arrows]
    lines += [f"    {node(name)} --> [*]" for name in names if name.startswith("Ended")]
    return [*lines, "```"]


def renewed(text):
    """Give the page with the table and the diagram of today."""
    for name, lines in (("table", table()), ("diagram", diagram())):
        block = f"<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- end of the {name} -->"
        text, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end of the {name} -->", lambda _, block=block: block, text, flags=re.DOTALL
        )
        if count != 1:
            message = f"{PAGE} has {count} places for the {name}"
            raise ValueError(message)
    return text


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
