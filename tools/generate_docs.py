"""Write the tables in docs/generated from what is installed and blessed, or compare them with it (`--check`).

Nothing is compiled: limits and priorities are read from the candidates, figures from the families' goldens. Each page
has a section for each family on each arch; those of the checkout's that are not installed are kept as they are. One
page lists what the model of time counts with on each arch, and one what emitters are written with (`list_toolkit`).
"""

import argparse
import difflib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import measure_quality
import served
from list_toolkit import page as toolkit

from kinfolk.arch import Arch
from kinfolk.expr import Scope
from kinfolk.flavor import flavors
from kinfolk.plugins.composition import Composition, arch_of, compose
from kinfolk.plugins.loading import load, usable
from kinfolk.refusal import Limit
from kinfolk_runtime.goldens.place import Place
from kinfolk_runtime.spec_space import spec_space

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "generated"
COMMAND = "python tools/generate_docs.py"
HEAD = f"<!-- Written by `{COMMAND}`; a change by hand is undone. -->\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


Section = tuple[str, str]


def pairs() -> list[Section]:
    """Return every family on every arch that is installed."""
    return [(family, arch) for family in usable("family") for arch in usable("arch")]


def absent() -> set[str]:
    """Return the families and archs that the checkout offers and that are not installed."""
    found: set[str] = set()
    for path in (*ROOT.glob("arch/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")):
        groups = tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        found |= {name for group in ("kinfolk.families", "kinfolk.archs") for name in groups.get(group, {})}
    return found - {*usable("family"), *usable("arch")}


def kernels(composition: Composition) -> str:
    """Return how many kernels a family has on an arch, by flavor, and which of its specs are refused there."""
    told: list[str] = []
    for flavor in flavors():
        space = spec_space(composition, flavor.name)
        refused = [refusal for spec in space for refusal in composition.validate_spec(spec)[:1]]
        lacking = "".join(f"; {refusal}" for refusal in dict.fromkeys(map(str, refused)))
        told.append(f"{flavor.name}: {len(space) - len(refused)} of {len(space)} specs{lacking}")
    return ", ".join(told)


def support(composition: Composition) -> Iterator[str]:
    """Yield what a family serves on an arch: how many specs have a kernel, then each candidate's limits."""
    yield f"Specs that have a kernel, of all that the candidates can ask for: {kernels(composition)}.\n"
    for candidate in composition.candidates():
        yield f"### {candidate.name} on {composition.arch.name}\n"
        yield table(
            ("field", "takes", "why", "otherwise"), (limit_row(limit, composition) for limit in candidate.capability)
        )


def served_by(composition: Composition) -> Iterator[str]:
    """Yield the tables that a family lists of what serves which request on an arch."""
    found = list(served.tables(composition))
    for each in found:
        yield f"{each.about}:\n"
        yield table(each.head, each.rows)
    if not found:
        yield "It lists none.\n"


def limit_row(limit: Limit, composition: Composition) -> tuple[str, ...]:
    """Return the row of one limit, worded with the arch's facts."""
    remedy = limit.remedy.format_map({name: f"*{name}*" for name, _ in limit.suggestions})
    return (f"`{limit.field}`", limit.worded(Scope(arch=composition.arch)), limit.because, remedy)


def resources(composition: Composition) -> Iterator[str]:
    """Yield what a family's kernels take on an arch, as it is blessed."""
    document = Place.of(composition).document("figures", composition.arch.name)
    if document is None:
        yield "Nobody has blessed any.\n"
        return
    rows = [(section, row) for section, each in document.sections.items() for row in each.rows]
    names = [name for name in dict.fromkeys(name for _, row in rows for name in row.values) if name != "llvm"]
    yield table(
        ("flavor and build", "kernel", "spec", *names),
        [(section, row.symbol, row.spec, *(row.values.get(name, "") for name in names)) for section, row in rows],
    )


def priority(composition: Composition) -> Iterator[str]:
    """Yield which candidate of a family is taken of several on an arch."""
    ordered = sorted(composition.candidates(), key=lambda candidate: (candidate.priority, candidate.name))
    rows = [
        (
            place,
            candidate.name,
            candidate.priority,
            f"llvm{candidate.min_llvm}",
            candidate.plugin,
            "<br>".join(f"{note}" for note in candidate.notes),
        )
        for place, candidate in enumerate(ordered, 1)
    ]
    yield table(("", "candidate", "priority", "oldest flavor", "of", "notes"), rows)


def quality(composition: Composition) -> Iterator[str]:
    """Yield how good a family's kernels are on an arch by their code, beside what others have."""
    rows = list(measure_quality.page(composition))
    yield table(measure_quality.COLUMNS, rows) if rows else "Nobody has measured any.\n"


def time_constants(arch: Arch) -> str:
    """Return what the model of time counts with on an arch."""
    known = arch.machine.time_constants(arch) if arch.machine and arch.machine.time_constants else ()
    if not known:
        return "It has no model of the time of its machine code.\n"
    rows = [(f"`{c.name}`", f"{c.value:g}", c.unit, c.meaning, c.source) for c in known]
    return table(("constant", "value", "unit", "means", "source"), rows)


TIME = (
    "# What the model of time counts with\n\nThe constants of `kinfolk profile --executor isa` "
    "([machine code](../isa.md#time)). Nothing here was measured on a device. What an arch's memory and matrix unit "
    "are is told by its facts.\n"
)
PAGES = {
    "support.md": (
        "# What is served\n\nA request that meets all limits of a candidate is served; any other is refused with every "
        "reason.\n",
        support,
    ),
    "served.md": (
        "# What serves which request\n\nAlong the axes that a family lists: the candidate that is taken by the newest "
        "flavor, or the refusals of the one that has the fewest.\n",
        served_by,
    ),
    "resources.md": (
        "# What compiled kernels take\n\nThe figures that `kinfolk golden check` compares with, by arch, flavor and "
        "build of the compiler.\n",
        resources,
    ),
    "quality.md": (
        "# How good kernels are by their code\n\n"
        "Nothing here is a run time: `kinfolk inspect` reads these figures from compiled code, and "
        "[its page](../cli.md#inspect) says what its models assume. **Clocks** are of a compute unit per key and 64 "
        "heads, without cold blocks and with all of them; **real** by the second model. Of prefill a head is a row of "
        "queries. **Matrix share** counts cold blocks, **hot** does not. **Conflicts** are the cycles of workgroup "
        "memory that bank conflicts take, of all, as `kinfolk profile` counts them; at least so many, where it is not "
        "published which lanes are served together. **Kept** is the floor below which a test fails.\n\n"
        f"`{measure_quality.COMMAND}` measures again. The rows behind ours are of published kernels, named with the "
        "revision that was compiled, by the same models, every block of their loops counted; and of prototypes. "
        "Attention over 128 columns stands for prefill, for which no published kernel expands the keys.\n",
        quality,
    ),
    "priority.md": (
        "# Which candidate is taken\n\nOf those that serve a request the first in this order of which no note says "
        "that it is slower there, unless a policy ranks them or the request pins one.\n",
        priority,
    ),
}


def sections(text: str) -> dict[Section, str]:
    """Return the sections of a page, by family and arch."""
    parts = re.split(r"^## (\w+) on (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {(family, arch): body for family, arch, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def generated(folder: Path) -> dict[str, str]:
    """Return every page by its name; of what is not installed, a page keeps the section that it has in the folder."""
    made = {pair: compose(*pair) for pair in pairs()}
    pages: dict[str, str] = {}
    for name, (title, page) in PAGES.items():
        path = folder / name
        before = sections(path.read_text(encoding="utf-8")) if path.exists() else {}
        now = {pair: body for pair, body in before.items() if not absent().isdisjoint(pair)}
        now |= {pair: "\n" + "\n".join(page(composition)) + "\n" for pair, composition in made.items()}
        body = "".join(f"## {family} on {arch}\n{text}" for (family, arch), text in sorted(now.items()))
        pages[name] = f"{HEAD}\n{title}\n{body}".rstrip("\n") + "\n"
    pages["time.md"] = f"{HEAD}\n{TIME}\n{_by_arch(folder / 'time.md')}".rstrip("\n") + "\n"
    pages["toolkit.md"] = f"{HEAD}\n{toolkit()}".rstrip("\n") + "\n"
    return pages


def _by_arch(path: Path) -> str:
    """Return the sections of the page of constants; of an arch that is not installed, as it is."""
    before = sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    now = {pair: body for pair, body in before.items() if pair[1] in absent()}
    for arch in usable("arch"):
        now["clocks", arch] = f"\n{time_constants(arch_of(load('arch', arch)))}\n"
    return "".join(f"## {what} on {arch}\n{text}" for (what, arch), text in sorted(now.items()))


def differences(pages: dict[str, str], folder: Path) -> list[str]:
    """Return the lines in which the pages of a folder are not these, pages too many or missing included."""
    lines: list[str] = []
    there = {path.name for path in folder.glob("*")} if folder.is_dir() else set[str]()
    for name in sorted(there | pages.keys()):
        found = (folder / name).read_text(encoding="utf-8") if name in there else ""
        lines += difflib.unified_diff(
            found.splitlines(),
            pages.get(name, "").splitlines(),
            f"{name} as it is",
            f"{name} as generated",
            "",
            "",
            0,
            "",
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare and write nothing; exit status 1 on a difference")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are")
    arguments = parser.parse_args()
    pages = generated(arguments.folder)
    if missing := sorted(absent()):
        print(f"not installed, their sections are kept as they are: {', '.join(missing)}")
    if arguments.check:
        lines = differences(pages, arguments.folder)
        print(*lines, sep="\n", end="\n" if lines else "")
        print(f"the tables are not what is installed: {COMMAND}" if lines else f"docs: {len(pages)} pages as generated")
        return int(bool(lines))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (arguments.folder / name).write_text(text, encoding="utf-8", newline="\n")
    print(f"docs: {len(pages)} pages written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
