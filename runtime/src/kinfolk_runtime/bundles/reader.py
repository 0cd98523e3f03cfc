"""Reading a bundle: the same dispatch over its data, and its kernels on the simulator. The family need not be here.

bundle = load_bundle(folder)
plan = bundle.dispatch(bundle.request(num_heads=32, ...))    # as kinfolk.dispatch, from the data alone
outputs = bundle.bind(plan, tensors)()                       # needs the arch's distribution, whose ops the IR names
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs

from kinfolk.candidate import Candidate
from kinfolk.dispatch.cache import SelectionCache
from kinfolk.dispatch.why import Why, explain
from kinfolk.errors import BindError, NoCandidate
from kinfolk.expr import Expr, Scope, from_data
from kinfolk.fields import shown
from kinfolk.frozen import FrozenDict
from kinfolk.ir import Kernel
from kinfolk.ir.text import parse_kernel
from kinfolk.plan import NO_TENSORS, Launch, Plan, Tensors
from kinfolk.refusal import Limit, Refusal, unmet
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument
from kinfolk_runtime.binder import Bound, bind
from kinfolk_runtime.bundles.document import BundleError, Values, read_document
from kinfolk_runtime.bundles.kernel_data import BundledSpec, spec_from
from kinfolk_runtime.bundles.limit_data import limit_from, note_from, refusal_from
from kinfolk_runtime.bundles.plan_data import plan_from
from kinfolk_runtime.bundles.request_data import request_class
from kinfolk_runtime.executor import Executor
from kinfolk_runtime.packing import packed

if TYPE_CHECKING:
    from kinfolk.arch import Arch

PLUGIN = "kinfolk-runtime"


@attrs.frozen(kw_only=True)
class _ArchFacts:
    """What dispatch asks of an arch, where only its facts are known."""

    name: str
    facts: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class _Case:
    when: Expr
    plan: Mapping[str, Any]
    specs: tuple[Spec, ...]
    judged: tuple[tuple[Limit, str] | Refusal, ...]


@attrs.frozen(kw_only=True, eq=False)
class _Data:
    """A bundle as dispatch sees a composition: candidates, and what refuses them."""

    arch: Any
    request_type: type[Request]
    versions: Mapping[str, str]
    policy_digests: Mapping[str, str]
    _cases: Mapping[str, tuple[_Case, ...]] = attrs.field(alias="cases")
    _candidates: tuple[Candidate, ...] = attrs.field(alias="candidates")

    def candidates(self) -> Sequence[Candidate]:
        """Return the candidates, in the family's order."""
        return self._candidates

    def validate_spec(self, spec: Spec) -> Sequence[Refusal]:
        """Return nothing: what refuses a spec is part of its case."""
        return ()

    def admit(self, request: Request, candidate: Candidate, plan: Plan) -> Sequence[Refusal]:
        """Return every refusal of the case that a request is of."""
        found: list[Refusal] = []
        for judge in _case_of(candidate.name, self._cases[candidate.name], request, self.arch).judged:
            found += [judge] if isinstance(judge, Refusal) else unmet((judge[0],), request, self.arch, judge[1])
        return found

    def rank(self, request: Request, survivors: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the order as it is: a bundle has no policies that rank."""
        return survivors


def _case_of(name: str, cases: Iterable[_Case], request: object, arch: Any) -> _Case:
    scope = Scope(request=request, arch=arch)
    for case in cases:
        if case.when.holds(scope):
            return case
    raise BundleError(f"{name}: the bundle has no case for {request}, which its capability takes; it is damaged.")


def load_bundle(folder: str | Path) -> Bundle:
    """Return the bundle in a folder, its document checked; BundleError where there is none or it was changed."""
    place = Path(folder)
    return Bundle(folder=place, data=FrozenDict(read_document(place)))


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Bundle:
    """A family on an arch as data; `data` is what stands in `launch.json`."""

    folder: Path
    data: Values = attrs.field(repr=False)
    _selections: SelectionCache = attrs.field(init=False, repr=False, factory=SelectionCache)

    @property
    def flavor(self) -> str:
        """The LLVM generation that the kernels were compiled by."""
        return self.data["flavor"]

    @cached_property
    def request_type(self) -> type[Request]:
        """A class that takes the requests that the family's own takes."""
        return request_class(self.data["family"], self.data["request"])

    @cached_property
    def _composed(self) -> _Data:
        data = self.data
        arch = _ArchFacts(name=data["arch"], facts=data["facts"])
        specs = {digest: spec_from(digest, kernel) for digest, kernel in data["kernels"].items()}
        cases = {each["name"]: self._cases(each, specs) for each in data["candidates"]}
        return _Data(
            arch=arch,
            request_type=self.request_type,
            versions=data["versions"],
            policy_digests=data["policy_digests"],
            cases=cases,
            candidates=tuple(_candidate(each, cases[each["name"]]) for each in data["candidates"]),
        )

    def _cases(self, data: Mapping[str, Any], specs: Mapping[str, BundledSpec]) -> tuple[_Case, ...]:
        missing = BundledSpec(name="not_in_the_bundle", of="none", declared="[]")
        return tuple(
            _Case(
                when=from_data(case["when"]),
                plan=self.data["plans"][case["plan"]],
                specs=tuple(specs.get(digest, missing) for digest in case["kernels"]),
                judged=tuple(_judge(each) for each in case["admission"]),
            )
            for case in data["cases"]
        )

    def request(self, **fields: Any) -> Request:
        """Return a request; raises what the family's own class raises, in the same words."""
        return self.request_type(**fields)

    def dispatch(self, request: Request) -> Plan:
        """Return the plan of a request, as `kinfolk.dispatch` does. Raises as it does, with the same refusals.

        A request that a bundle of one request was not made for raises NoCandidate with `bundle.FIELD`.
        """
        if refusals := self.uncovered(request):
            lines = "".join(f"\n  {refusal}" for refusal in refusals)
            raise NoCandidate(f"the bundle in {self.folder} is not made for {request}:{lines}", refusals)
        return self._selections.plan(self._composed, request, self.flavor)

    def why(self, request: Request) -> Why:
        """Return what became of every candidate, as `kinfolk.why` does; `covers` is not asked."""
        return explain(self._composed, request, self.flavor)

    def uncovered(self, request: Request) -> tuple[Refusal, ...]:
        """Return a refusal for each field that a bundle of one request was made for another value of."""
        found: list[Refusal] = []
        for name, encoded in self.data["covers"].items():
            wanted = float.fromhex(encoded["float"]) if isinstance(encoded, dict) else encoded  # pyright: ignore
            value = cast("object", getattr(request, name))
            if type(value) is not type(cast("object", wanted)) or value != wanted:
                found.append(uncovered_field(name, value, shown(wanted)))
        return tuple(found)

    @property
    def arch(self) -> Arch:
        """The installed arch of this name; BundleError where it declares other facts than the bundle was made with."""
        return self._installed_arch

    @cached_property
    def _installed_arch(self) -> Arch:
        from kinfolk.plugins.composition import arch_of
        from kinfolk.plugins.loading import load

        arch = arch_of(load("arch", self.data["arch"]))
        for name, value in self.data["facts"].items():
            if (found := arch.facts.get(name)) != value:
                raise BundleError(
                    f"the bundle was made where {arch.name} has {name} = {value!r}, here it is {found!r}. "
                    f"Emit it again."
                )
        return arch

    def emit(self, spec: Spec) -> Kernel:
        """Return the kernel of a spec of this bundle's plans, read from its IR text."""
        entry = self._kernel(spec)
        return parse_kernel(self._file(entry["ir"]).decode(), self.arch.op_table)

    def code(self, launch: Launch) -> bytes:
        """Return the linked code object of a launch, as a device loads it."""
        return self._file(self._kernel(launch.spec)["code"])

    def bind(
        self,
        plan: Plan,
        tensors: Mapping[str, Any],
        executor: Executor | str | None = None,
        check_contents: bool = False,
    ) -> Bound:
        """Bind tensors to a plan of this bundle for an executor of IR. Raises as `kinfolk_runtime.bind`."""
        return bind(plan, tensors, executor, check_contents, composition=self)

    def argument_bytes(
        self, plan: Plan, launch: Launch, addresses: Mapping[str, int], tensors: Tensors = NO_TENSORS
    ) -> bytes:
        """Return the argument block of a launch for tensors that lie at these device addresses, by binding."""
        layout = [
            KernelArgument(offset=each["offset"], size=each["size"], kind=each["kind"])
            for each in self._kernel(launch.spec)["arguments"]
        ]
        return packed(plan.arguments(launch, tensors), layout, addresses)

    def _kernel(self, spec: Spec) -> dict[str, Any]:
        kernels = cast("dict[str, dict[str, Any]]", self.data["kernels"])
        if not isinstance(spec, BundledSpec) or spec.of not in kernels:
            raise BindError(f"{spec.symbol()} is no kernel of the bundle in {self.folder}. Dispatch with the bundle.")
        return kernels[spec.of]

    def _file(self, entry: Mapping[str, Any]) -> bytes:
        path = self.folder / entry["file"]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}. Emit the bundle again.") from error
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise BundleError(f"{path} was changed since it was written. Emit the bundle again.")
        return content


def uncovered_field(name: str, value: object, wanted: str) -> Refusal:
    """Return the refusal of a request that a bundle of one request was not made for."""
    return Refusal(
        code=f"bundle.{name}",
        kind="cannot",
        field=name,
        value=value,
        limit=wanted,
        because="the bundle was made for one request",
        remedy="Emit a bundle for this one, or for all with --all.",
        plugin=PLUGIN,
    )


def _judge(data: dict[str, Any]) -> tuple[Limit, str] | Refusal:
    return refusal_from(data) if "refusal" in data else (limit_from(data), data["plugin"])


def _candidate(data: Mapping[str, Any], cases: tuple[_Case, ...]) -> Candidate:
    name = data["name"]

    def plan(request: Request, arch: Any) -> Plan:
        case = _case_of(name, cases, request, arch)
        return plan_from(case.plan, case.specs, request)

    return Candidate(
        name=name,
        priority=data["priority"],
        plugin=data["plugin"],
        min_llvm=data["min_llvm"],
        capability=tuple(limit_from(each) for each in data["admission"] if "refusal" not in each),
        plan=plan,
        specs=lambda arch, flavor: tuple(spec for case in cases for spec in case.specs),
        notes=tuple(note_from(each) for each in data["notes"]),
    )
