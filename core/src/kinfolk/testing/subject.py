"""What a check is run on: a family on an arch for a flavor, or an arch alone, with what checks share of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import attrs

from kinfolk.arch import Arch
from kinfolk.flavor import DEFAULT_FLAVOR, Flavor, flavor_named
from kinfolk.ir.text import print_kernel
from kinfolk.plugins.composition import Composition, arch_of, compose
from kinfolk.plugins.loading import load
from kinfolk.spec import Spec
from kinfolk.testing.check import Level

if TYPE_CHECKING:
    from kinfolk.candidate import Candidate
    from kinfolk.ir.value import Kernel
    from kinfolk.testing.requests import Requests

T = TypeVar("T")
QUICK_SPECS = 6
"""How many specs a quick check that emits or compiles takes; a full one takes all."""


def _unheard(how_far: str) -> None:
    """Say nothing of how far a check is."""


@attrs.define(kw_only=True, eq=False, slots=False)
class Subject:
    """A family on an arch, or an arch (`composition` is None then); checks keep what several of them need in `kept`.

    `seed` decides all that is drawn. `progress` is told how far a check is that takes its time.
    """

    name: str
    arch: Arch
    composition: Composition | None = None
    level: Level = "quick"
    flavor_name: str = DEFAULT_FLAVOR
    seed: int = 0
    kept: dict[str, Any] = attrs.field(factory=dict[str, Any], repr=False)
    progress: Callable[[str], None] = attrs.field(default=_unheard, repr=False)

    @classmethod
    def of_family(cls, family: str | Composition, arch: str = "", level: Level = "quick", **more: Any) -> Self:
        """Return a family on an arch by their names, or a composition of them. Raises as `compose`."""
        composition = compose(family, arch) if isinstance(family, str) else family
        return cls(name=composition.family, arch=composition.arch, composition=composition, level=level, **more)

    @classmethod
    def of_arch(cls, arch: str, level: Level = "quick", **more: Any) -> Self:
        """Return an arch by its name. Raises UnknownPlugin, UnusablePlugin or HookFault."""
        return cls(name=arch, arch=arch_of(load("arch", arch)), level=level, **more)

    @property
    def kind(self) -> str:
        """`family` or `arch`."""
        return "arch" if self.composition is None else "family"

    @property
    def title(self) -> str:
        """`mla on gfx942`, or the arch's name."""
        return self.name if self.composition is None else f"{self.name} on {self.arch.name}"

    @property
    def full(self) -> bool:
        """Whether the level is `full`."""
        return self.level == "full"

    @property
    def flavor(self) -> Flavor:
        """The LLVM generation."""
        return flavor_named(self.flavor_name)

    @property
    def composed(self) -> Composition:
        """The composition of a family; TypeError of an arch."""
        if self.composition is None:
            raise TypeError(f"{self.name} is an arch, a check of a family was run on it")
        return self.composition

    @cached_property
    def sharing(self) -> Composition:
        """The composition of a family for checks that compile and run kernels: it emits each once, for all of them.

        Those that look at emitting itself, and whether another time gives the same, ask `composed`.
        """
        shared = copy.copy(self.composed)
        vars(shared)["emit"] = self.kernel
        return shared

    @property
    def package(self) -> str:
        """The package that a family's request is of; nothing of an arch."""
        return "" if self.composition is None else self.composition.request_type.__module__.partition(".")[0]

    def command(self, check: str) -> str:
        """Return the command that runs one check again."""
        where = "" if self.composition is None else f" --arch {self.arch.name}"
        full = " --level full" if self.full else ""
        flavor = f" --flavor {self.flavor_name}" if self.flavor_name != DEFAULT_FLAVOR else ""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"kinfolk conformance {self.name}{where} --check {check}{full}{flavor}{seed}"

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives, made once for all checks under a name."""
        if name not in self.kept:
            self.kept[name] = make()
        return cast("T", self.kept[name])

    @cached_property
    def requests(self) -> Requests:
        """Requests of the family, made from what it declares."""
        from kinfolk.testing.requests import Requests

        return Requests(self.composed, self.flavor_name, self.seed)

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        """Every spec that a candidate can name, each once, in their order."""
        composition = self.composed
        offered = [each for each in composition.candidates() if each.min_llvm <= self.flavor.rank]
        every = [spec for each in offered for spec in each.spec_space(self.arch, self.flavor_name)]
        legal = [spec for spec in every if not composition.validate_spec(spec)]
        return tuple({spec.identity(): spec for spec in legal}.values())

    @cached_property
    def unserved(self) -> str:
        """Why a family serves nothing on the arch: what every one of its specs is refused for; nothing where it does.

        A family without candidates, or whose candidates have no specs, is no such case: it is at fault.
        """
        if self.composition is None or self.specs:
            return ""
        every = [
            spec for each in self.composition.candidates() for spec in each.spec_space(self.arch, self.flavor_name)
        ]
        refusals = [refusal for spec in every for refusal in self.composition.validate_spec(spec)]
        return f"{self.name} serves nothing on {self.arch.name}: {refusals[0].sentence}" if refusals else ""

    @cached_property
    def serving(self) -> tuple[str, ...]:
        """The candidates that must be looked at: all but those that admit nothing as the arch has none of a kind of
        their specs."""
        return tuple(
            each.name
            for each in self.requests.candidates
            if self.requests.bases(each) or not lacks_a_kind(self.composed, each, self.flavor_name)
        )

    @cached_property
    def sampled_specs(self) -> tuple[Spec, ...]:
        """At level full all specs, at level quick a few: of every class the first and the last, then evenly spread."""
        if self.full or len(self.specs) <= QUICK_SPECS:
            return self.specs
        ends: dict[type[Spec], list[int]] = {}
        for index, spec in enumerate(self.specs):
            ends.setdefault(type(spec), []).append(index)
        chosen = {index for found in ends.values() for index in (found[0], found[-1])}
        spread = (place * len(self.specs) // QUICK_SPECS for place in range(QUICK_SPECS))
        chosen.update(index for index in spread if len(chosen) < QUICK_SPECS)
        return tuple(self.specs[index] for index in sorted(chosen))

    def kernel(self, spec: Spec) -> Kernel:
        """Return the kernel of a spec, emitted once for all checks."""
        return self.once(f"kernel {spec.identity()}", lambda: self.composed.emit(spec))

    def keep_kernel(self, spec: Spec, kernel: Kernel) -> None:
        """Keep a kernel that a check emitted as that of its spec, for the checks after it."""
        self.once(f"kernel {spec.identity()}", lambda: kernel)

    def kernel_text(self, spec: Spec) -> str:
        """Return the text of a spec's kernel, printed once for all checks."""
        return self.once(f"text {spec.identity()}", lambda: print_kernel(self.kernel(spec)))


def lacks_a_kind(composition: Composition, candidate: Candidate, flavor: str) -> bool:
    """Return whether every spec of one class, of those that a candidate can name, is refused on the arch."""
    refused: dict[type[Spec], bool] = {}
    for spec in candidate.spec_space(composition.arch, flavor):
        refused[type(spec)] = refused.get(type(spec), True) and bool(composition.validate_spec(spec))
    return any(refused.values())
