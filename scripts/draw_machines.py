"""Write the tables of the state machines into the pages that explain them, and draw their diagrams.

.venv/bin/python scripts/draw_machines.py

The tables stand in the docstrings of the machines. The diagrams need Graphviz (Debian: graphviz); nobody else does,
since the drawings are kept beside the pages.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from promptkit import coordination
from promptkit._machines import run

DOCS = Path(__file__).resolve().parents[1] / "docs"
CHOICES = ("request", "stop", "raised")
LOOK = """
digraph "%s" {
    rankdir = TB; bgcolor = "white"; pad = 0.3; nodesep = 0.45; ranksep = 0.55;
    node [shape = box, style = "rounded,filled", fillcolor = "#eef3fb", color = "#33548a", fontname = "Helvetica",
          fontsize = 13, margin = "0.16,0.08"];
    edge [color = "#6b7280", fontname = "Helvetica", fontsize = 11, fontcolor = "#374151", arrowsize = 0.7];
    start [shape = circle, style = filled, fillcolor = "#33548a", width = 0.18, label = ""];
"""


class Machine:
    """A machine: where its table stands, and where its diagram goes."""

    def __init__(self, name, module, page, begins):
        self.name, self.begins = name, begins
        self.page = DOCS / page
        self.picture = DOCS / "concepts" / f"{name}.svg"
        self.text = module.__doc__ or ""

    def rows(self):
        """Give the rows of the table: state, input, condition, command, next state."""
        lines = iter(self.text.splitlines())
        head = next(line for line in lines if re.match(r" +(state|phase) ", line))
        columns = [found.start() for found in re.finditer(r"\S+( \S+)*", head)]
        rows = []
        for line in lines:
            if not line.strip():
                return rows
            ends = [*columns[1:], len(line)]
            cells = [line[begin:end].strip() for begin, end in zip(columns, ends, strict=True)]
            if cells[0]:
                rows.append(cells)
            else:  # goes on from the line before
                rows[-1] = [f"{before} {more}".strip() for before, more in zip(rows[-1], cells, strict=True)]
        return rows

    def table(self):
        """Give the table as a page has it."""
        head = ["state", "input", "condition", "command", "next state"]
        return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * 5, *self.rows())]

    def ways(self):
        """Give each arrow: from, to, what is written on it."""
        for state, taken, condition, command, following in self.rows():
            reached = re.split(r"[,:]", following)[0]
            label = taken + ("" if condition == "-" else f" [{condition}]")
            sources = [f"Deciding({choice})" for choice in CHOICES] if state == "Deciding(any)" else [state]
            for source in sources:
                yield source, reached, f"{label} / {command}"

    def graph(self):
        """Give the diagram as Graphviz reads it."""
        arrows = [("start", *self.begins), *self.ways()]
        ends = {reached for _, reached, _ in arrows} - {source for source, _, _ in arrows}
        lines = [LOOK % self.name]
        lines += [f'    "{name}" [fillcolor = "#f3f4f6", color = "#6b7280"];' for name in sorted(ends)]
        lines += [f'    "{source}" -> "{reached}" [label = "{broken(label)}"];' for source, reached, label in arrows]
        return "\n".join([*lines, "}", ""])

    def drawn(self):
        """Give the arrows of the picture that there is: from, to, what is written on it."""
        picture = self.picture.read_text(encoding="utf-8")
        for edge in re.findall(r'<g id="edge\d+" class="edge">(.*?)</g>', picture, re.DOTALL):
            source, reached = re.search(r"<title>(.*?)&#45;&gt;(.*?)</title>", edge).groups()
            label = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", edge))
            yield source, reached, label.replace("&#160;", " ").replace("&#45;", "-")

    def renewed(self, text):
        """Give the page with the table of today."""
        block = "<!-- table -->\n" + "\n".join(self.table()) + "\n<!-- end of the table -->"
        text, count = re.subn(r"<!-- table -->.*?<!-- end of the table -->", lambda _: block, text, flags=re.DOTALL)
        if count != 1:
            message = f"{self.page} has {count} places for the table"
            raise ValueError(message)
        return text


def broken(label):
    """Break what is written on an arrow into lines, at its condition and its command."""
    return re.sub(r"(?<=.{18}) or ", r"\\nor ", label).replace(" [", r"\n[").replace(" / ", r"\n/ ")


MACHINES = (
    Machine("coordination", coordination, "reference/coordination.md", ("Checking(pending)", "start / Check")),
    Machine("run", run, "concepts/runs.md", ("queued", "start / ask for a permit")),
)


def main():
    dot = shutil.which("dot")
    if dot is None:
        sys.exit("draw_machines: Graphviz is not on the PATH: install it (Debian: graphviz)")
    for machine in MACHINES:
        machine.page.write_text(machine.renewed(machine.page.read_text(encoding="utf-8")), encoding="utf-8")
        drawn = subprocess.run([dot, "-Tsvg"], input=machine.graph(), capture_output=True, text=True, check=True)  # noqa: S603
        svg = re.sub(r"<\?xml.*?<svg ", "<svg ", drawn.stdout, flags=re.DOTALL)
        machine.picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
