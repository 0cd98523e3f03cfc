"""What a command is asked about: a family on an arch, and the request that `key=value` words make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click

from kinfolk.cli.app import unknown
from kinfolk.cli.output import refusals_of
from kinfolk.errors import KinfolkError, Refused
from kinfolk.refusal import Refusal

if TYPE_CHECKING:
    from kinfolk.cli.values import RequestInput
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition


@attrs.frozen(kw_only=True)
class Asked:
    """A request on an arch as far as it came: with its plan, or with every reason why there is none."""

    family: str
    arch: str
    flavor: str
    composition: Composition | None = None
    read: RequestInput | None = None
    plan: Plan | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def title(self) -> str:
        """`mla on gfx942, llvm22`."""
        return f"{self.family} on {self.arch}, {self.flavor}"

    @property
    def fields(self) -> dict[str, Any]:
        """The request's fields as far as they are known."""
        if self.plan is not None:
            return self.plan.request.to_dict()
        return self.read.fields if self.read else {}

    @property
    def defaults(self) -> dict[str, Any]:
        """The fields that the command line filled in."""
        return dict(self.read.defaults) if self.read else {}


def asked(family: str, arch: str, flavor: str, words: tuple[str, ...]) -> Asked:
    """Return the plan that `key=value` words come to on an arch, or every reason why they come to none.

    An unknown field is a usage error, exit status 2.
    """
    from kinfolk.cli.values import request_from
    from kinfolk.dispatch import selections
    from kinfolk.plugins.composition import compose

    found = Asked(family=family, arch=arch, flavor=flavor)
    try:
        composition = compose(family, arch)
        found = attrs.evolve(found, composition=composition)
        found = attrs.evolve(found, read=request_from(composition.request_type, words))
        assert found.read is not None
        if found.read.request is None:
            return attrs.evolve(found, refusals=found.read.refusals)
        return attrs.evolve(found, plan=selections.plan(composition, found.read.request, flavor))
    except KinfolkError as error:
        return attrs.evolve(found, refusals=reasons(error))


def known_scenarios(composition: Composition, plan: Plan, names: tuple[str, ...]) -> list[str]:
    """Return the names of the scenarios of a plan; one of `names` that is not among them is a usage error."""
    offered = [scenario.name for scenario in composition.scenarios_of(plan)]
    for name in names:
        if name not in offered:
            raise click.UsageError(unknown("scenario", name, offered))
    return offered


def reasons(error: Exception) -> tuple[Refusal, ...]:
    """Return an error as refusals: those it carries, else one that says it."""
    if isinstance(error, Refused) and error.refusals:
        return error.refusals
    return tuple(Refusal(**row) for row in refusals_of(error))


arch_option = click.option("--arch", required=True, metavar="ARCH", help="The arch to serve the request on, by name.")


def flavor_option(command: Any) -> Any:
    """Add `--flavor` to a command."""
    from kinfolk.flavor import DEFAULT_FLAVOR

    told = "The LLVM generation to emit for."
    return click.option("--flavor", default=DEFAULT_FLAVOR, show_default=True, help=told)(command)
