"""Run the kernels of two code objects, or of a family and one, as machine code on one problem and compare them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_defaults, print_document, print_refusals, refusal_rows, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk.refusal import Refusal
from kinfolk_runtime.cli.asked import asked, flavor_option, known_scenarios, reasons

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.check import Scenario
    from kinfolk_runtime.comparison import Compared, FamilySide, ObjectSide, Problem
    from kinfolk_runtime.comparison.report import OutputDifference

FLAVOR_MARK: Final = "@"


@click.command("compare")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--arch", metavar="ARCH", help="The arch, by name; by default the one that an object is for.")
@flavor_option
@click.option("--problem", type=click.Path(path_type=Path), help="What objects are launched on: a TOML or JSON file.")
@click.option("--scenario", metavar="NAME", help="The scenario of a family; by default its first one.")
@click.option("--json", "as_json", is_flag=True, help="Print a document (kinfolk.compare/1).")
@click.pass_context
def command(
    ctx: click.Context,
    a: str,
    b: str,
    arch: str | None,
    flavor: str,
    problem: Path | None,
    scenario: str | None,
    as_json: bool,
) -> None:
    """Run A and B as machine code on the same inputs; compare outputs, what ran, and the clocks of a model of time.

    Each is the path of a code object, or a family's request as one word: 'FAMILY KEY=VALUE...', with FAMILY@FLAVOR for
    another LLVM than --flavor. With a family its scenario is the problem, and its reference judges both sides. Exit
    status 1 unless both run without a fault and agree.
    """
    wanted = [_wanted(each) for each in (a, b)]
    found = _compared(wanted, arch, flavor, problem, scenario)
    if as_json:
        print_document(found.to_dict())
    else:
        for defaults in found.defaults:
            print_defaults(defaults)
        if found.compared:
            _print(found.compared)
        print_refusals(refusal_rows(found.refusals))
    if found.compared is None or not found.compared.passed:
        ctx.exit(EXIT_FAILED)


@attrs.frozen(kw_only=True)
class _Found:
    """The comparison, or every reason why there is none, and what the command line filled in."""

    compared: Compared | None = None
    refusals: tuple[Refusal, ...] = ()
    defaults: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        if self.compared:
            return self.compared.to_dict()
        from kinfolk_runtime.comparison import SCHEMA

        nothing = dict.fromkeys(("arch", "problem", "a", "b"))
        return {
            "schema": SCHEMA,
            "status": "fail",
            **nothing,
            "outputs": [],
            "refusals": refusal_rows(self.refusals),
        }


def _wanted(text: str) -> Path | tuple[str, ...]:
    """Return a side as a path, or as the words of a request."""
    if Path(text).is_file():
        return Path(text)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise click.UsageError(f"{text!r} is no path and no words of a request: {error}") from None
    if not words or (len(words) == 1 and (os.sep in text or Path(text).suffix)):
        raise click.UsageError(f"there is no file {text!r}; a side is a code object, or 'FAMILY KEY=VALUE...'")
    return words


def _compared(
    wanted: list[Path | tuple[str, ...]], arch: str | None, flavor: str, file: Path | None, scenario: str | None
) -> _Found:
    """Return the comparison, or every reason why there is none."""
    from kinfolk_runtime.comparison import FamilySide, compare_objects, compare_on_family, read_problem

    try:
        objects = {each: _object(each) for each in wanted if isinstance(each, Path)}
        machine = _arch(list(objects.values()), arch)
        problem: Problem | None = read_problem(file) if file else None
        sides: list[ObjectSide | FamilySide] = []
        defaults: list[Mapping[str, Any]] = []
        for each in wanted:
            if isinstance(each, Path):
                sides.append(objects[each])
                continue
            name, _, other = each[0].partition(FLAVOR_MARK)
            asking = asked(name, machine.name, other or flavor, each[1:])
            if asking.defaults not in defaults:
                defaults.append(asking.defaults)
            if asking.plan is None or asking.composition is None:
                return _Found(refusals=asking.refusals, defaults=tuple(defaults))
            sides.append(FamilySide(name=" ".join(each), composition=asking.composition, plan=asking.plan))
        family = next((each for each in sides if isinstance(each, FamilySide)), None)
        if family is not None:
            compared = compare_on_family(machine, _scenario(family, scenario), sides[0], sides[1], problem)
            return _Found(compared=compared, defaults=tuple(defaults))
        if problem is None or scenario is not None:
            raise click.UsageError("two objects are compared on a --problem; a --scenario is a family's")
        a, b = (objects[each] for each in wanted if isinstance(each, Path))
        return _Found(compared=compare_objects(machine, problem, a, b))
    except KinfolkError as error:
        return _Found(refusals=reasons(error))


def _object(path: Path) -> ObjectSide:
    from kinfolk_runtime.comparison import ObjectSide

    try:
        return ObjectSide(path=path, code=path.read_bytes())
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from error


def _arch(objects: list[ObjectSide], name: str | None) -> Arch:
    """Return the arch that is named, or that all objects are for."""
    from kinfolk.plugins.composition import arch_of
    from kinfolk.plugins.loading import load
    from kinfolk_runtime.inspection.files import UnreadableFileError, arch_for

    if not objects:
        if name is None:
            raise click.UsageError("families are compared on an --arch")
        return arch_of(load("arch", name))
    found = arch_for(objects[0].path, objects[0].code, name)
    for each in objects[1:]:
        if (other := arch_for(each.path, each.code, name)).name != found.name:
            raise UnreadableFileError(
                f"{objects[0].path} is for {found.name} and {each.path} for {other.name}: both sides run on one arch. "
                f"Name two objects for the same."
            )
    return found


def _scenario(family: FamilySide, name: str | None) -> Scenario:
    offered = {each.name: each for each in family.composition.scenarios_of(family.plan)}
    known_scenarios(family.composition, family.plan, (name,) if name else ())
    return offered[name] if name else next(iter(offered.values()))


def _print(found: Compared) -> None:
    sides = (found.a, found.b)
    a, b = (side.totals for side in sides)
    rows = [
        ("kernels", *(", ".join(launch.kernel for launch in side.launches) or "none ran" for side in sides), ""),
        *((name, *_figures(a.get(name), b.get(name))) for name in dict.fromkeys([*a, *b])),
        ("bound by", *(", ".join(launch.bound or "" for launch in side.launches) for side in sides), ""),
    ]
    say(f"{found.problem} on {found.arch}")
    print_table("", ("figure", "A", "B", "B / A"), rows)
    if found.outputs:
        columns = ("output", "status", "elements", "other bits", "largest difference", "tolerance there", "margin")
        print_table("A against B", columns, [_output(each) for each in found.outputs])
    for line in _told(found):
        say(line)
    say(f"{found.a.name} (A) and {found.b.name} (B): {'pass' if found.passed else 'fail'}")


def _figures(a: int | None, b: int | None) -> tuple[str, str, str]:
    ratio = f"{b / a:.3g}" if a and b is not None else ""
    return "" if a is None else str(a), "" if b is None else str(b), ratio


def _output(found: OutputDifference) -> tuple[object, ...]:
    of = found.comparison
    status = "pass" if of.passed else "fail"
    numbers = f"{of.max_abs_err:.3g}", f"{of.tolerance:.3g}", f"{of.margin:.3g}"
    return of.name, status, of.elements, found.differing, *numbers


def _told(found: Compared) -> Iterator[str]:
    for name, side in (("A", found.a), ("B", found.b)):
        yield from (f"{name}: {finding}" for finding in side.findings)
    for output in found.outputs:
        yield from (f"A against B: {finding}" for finding in output.comparison.findings)
