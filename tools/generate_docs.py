"""Write the tables in docs/generated from what is installed and blessed, or compare them with it (`--check`).

Nothing is compiled: limits and priorities are read from the candidates, figures from the families' goldens.
"""

import argparse
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kinfolk.candidate import Candidate
from kinfolk.expr import Scope
from kinfolk.flavor import flavors
from kinfolk.plugins.composition import Composition, compose
from kinfolk.plugins.loading import usable
from kinfolk.refusal import Limit
from kinfolk_runtime.goldens.place import Place
from kinfolk_runtime.spec_space import spec_space

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "generated"
COMMAND = "python tools/generate_docs.py"
HEAD = f"<!-- Written by `{COMMAND}`; a change by hand is undone. -->\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def compositions(family: str) -> list[Composition]:
    """Return a family on every arch that is installed."""
    return [compose(family, arch) for arch in usable("arch")]


def kernels(composition: Composition) -> str:
    """Return how many kernels a family has on an arch, by flavor, and which of its specs are refused there."""
    told: list[str] = []
    for flavor in flavors():
        space = spec_space(composition, flavor.name)
        refused = [refusal for spec in space for refusal in composition.validate_spec(spec)[:1]]
        lacking = "".join(f"; {refusal}" for refusal in dict.fromkeys(map(str, refused)))
        told.append(f"{flavor.name}: {len(space) - len(refused)} of {len(space)} specs{lacking}")
    return "<br>".join(told)


def support() -> Iterator[str]:
    """Yield the page of what is served: families on archs, then each candidate's limits."""
    families, archs = usable("family"), usable("arch")
    yield "# What is served\n"
    yield "Specs that have a kernel, of all that a family's candidates can ask for:\n"
    yield table(("family", *archs), [(family, *map(kernels, compositions(family))) for family in families])
    for family in families:
        on = compositions(family)
        for name in dict.fromkeys(candidate.name for each in on for candidate in each.candidates()):
            here = [(each, candidate) for each in on for candidate in each.candidates() if candidate.name == name]
            limits = dict.fromkeys(limit.code for _, candidate in here for limit in candidate.capability)
            yield f"## {name}\n"
            yield "A request that meets all of these is served; any other is refused with every reason.\n"
            columns = ("field", *(f"on {each.arch.name}" for each, _ in here), "why", "otherwise")
            yield table(columns, [limit_row(code, here) for code in limits])


def limit_row(code: str, here: Sequence[tuple[Composition, Candidate]]) -> tuple[str, ...]:
    """Return the row of one limit, worded with each arch's facts."""
    words: list[str] = []
    last: Limit | None = None
    for composition, candidate in here:
        limit = next((limit for limit in candidate.capability if limit.code == code), None)
        words.append(limit.worded(Scope(arch=composition.arch)) if limit else "any")
        last = limit or last
    assert last is not None
    remedy = last.remedy.format_map({name: f"*{name}*" for name, _ in last.suggestions})
    return (f"`{last.field}`", *words, last.because, remedy)


def resources() -> Iterator[str]:
    """Yield the page of what kernels take, as it is blessed."""
    yield "# What compiled kernels take\n"
    yield "The figures that `kinfolk golden check` compares with, by arch, flavor and build of the compiler.\n"
    for family in usable("family"):
        for composition in compositions(family):
            arch = composition.arch.name
            document = Place.of(composition).document("figures", arch)
            yield f"## {family} on {arch}\n"
            if document is None:
                yield "Nobody has blessed any.\n"
                continue
            names = [
                name
                for name in dict.fromkeys(
                    name for section in document.sections.values() for row in section.rows for name in row.values
                )
                if name != "llvm"
            ]
            yield table(
                ("flavor and build", "kernel", "spec", *names),
                [
                    (section, row.symbol, row.spec, *(row.values.get(name, "") for name in names))
                    for section, rows in document.sections.items()
                    for row in rows.rows
                ],
            )


def priority() -> Iterator[str]:
    """Yield the page of which candidate is taken of several."""
    yield "# Which candidate is taken\n"
    yield "Of those that serve a request the first in this order, unless a policy ranks them or the request pins one.\n"
    for family in usable("family"):
        for composition in compositions(family):
            yield f"## {family} on {composition.arch.name}\n"
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


PAGES = {"support.md": support, "resources.md": resources, "priority.md": priority}


def generated() -> dict[str, str]:
    """Return every page by its name."""
    return {name: "\n".join([HEAD, *page()]) for name, page in PAGES.items()}


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
    pages = generated()
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
