"""Joining one family with one arch and the active policies, and combining what their hooks answer.

composition = compose("mla", arch_name)
composition.candidates(); composition.emit(spec)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import pluggy

from kinfolk import hooks
from kinfolk._version import __version__
from kinfolk.errors import PluginError, Refused
from kinfolk.fields import shown
from kinfolk.plugins import builtins
from kinfolk.plugins.containment import WrongAnswerError, bounded, contained
from kinfolk.plugins.digest import policy_digest
from kinfolk.plugins.discovery import CORE, LOCK, Catalog, Offer, canonical, catalog
from kinfolk.plugins.faults import HookFault, UnusablePlugin
from kinfolk.plugins.loading import Loaded, load, sound
from kinfolk.refusal import Refusal

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.ir import Kernel
    from kinfolk.plan import Plan
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

T = TypeVar("T")
P = TypeVar("P", "Candidate", Refusal)

BUILTIN: Final = Loaded(
    Offer(kind="builtin", name="core", value=builtins.__name__, distribution=CORE, version=__version__), builtins
)


@attrs.frozen
class _Answerer:
    """One plugin's function for one hook, with the names of the arguments it wants."""

    owner: Loaded
    hook: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]

    def __call__(self, take: Callable[[Any], T], given: Mapping[str, object]) -> T:
        """Return what the plugin answers, as `take` checks it; whatever the plugin raises is a HookFault that names it.

        An error of the IR passes as it is, with the plugin noted: it already names op, arch and what to use instead.
        """
        package = self.owner.offer.module.partition(".")[0]
        arguments = [given[name] for name in self.arguments]
        return contained(self.owner, self.hook, self.function, *arguments, take=take, package=package)

    def fault(self, cause: str) -> HookFault:
        return HookFault(str(self.owner), self.hook, cause)


class Composition:
    """One family on one arch under the active policies; immutable once built, shared by threads.

    `arch` is the Arch, `request_type` the family's Request class, `versions` the version of each distribution taking
    part, and `policy_digests` a digest over each policy's files. Every method raises HookFault, naming plugin and hook,
    where a plugin fails.
    """

    def __init__(self, family: Loaded, arch: Loaded, policies: Sequence[Loaded] = ()) -> None:
        self.family: Final = family.offer.name
        self.members: Final = (BUILTIN, family, arch, *policies)
        self.versions: Final[Mapping[str, str]] = MappingProxyType(
            {member.offer.distribution: member.offer.version for member in self.members}
        )
        self.policy_digests: Final[Mapping[str, str]] = MappingProxyType(
            {policy.offer.name: policy_digest(policy) for policy in policies}
        )
        self._answerers: Final = _registered(self.members)
        self.arch: Final[Arch] = self._sole("kinfolk_arch", _arch_named(arch.offer.name))
        self.request_type: Final[type[Request]] = self._sole("kinfolk_request_type", _request_of(self.family))
        self._candidates: Final = self._gathered_candidates()

    def candidates(self) -> tuple[Candidate, ...]:
        """Return the candidates of all plugins, in the order of plugins and of their own lists."""
        return self._candidates

    def validate_spec(self, spec: Spec) -> tuple[Refusal, ...]:
        """Return every refusal of every plugin for a spec."""
        return self._collected("kinfolk_validate_spec", self._refusals, spec=spec, arch=self.arch)

    def admit(self, request: Request, candidate: Candidate, plan: Plan) -> tuple[Refusal, ...]:
        """Return every refusal of every plugin for a request on a candidate."""
        given = {"request": request, "candidate": candidate, "plan": plan, "arch": self.arch}
        return self._collected("kinfolk_admit_candidate", self._refusals, **given)

    def emit(self, spec: Spec) -> Kernel:
        """Return the kernel of a spec; exactly one plugin must answer. Raises Refused for a spec that any refuses."""
        from kinfolk.ir import Kernel

        self.expect_spec(spec)
        return self._sole(
            "kinfolk_emit_ir", _instance_or_none(Kernel), about=type(spec).__name__, spec=spec, arch=self.arch
        )

    def expect_spec(self, spec: Spec) -> None:
        """Raise Refused, with every reason, for a spec that is refused, and TypeError for what is none."""
        from kinfolk.spec import Spec

        if not isinstance(cast("object", spec), Spec):
            raise TypeError(f"a kernel is emitted for a Spec, got a {type(spec).__name__}: {shown(spec)}")
        if refusals := self.validate_spec(spec):
            reasons = "".join(f"\n  {refusal}" for refusal in refusals)
            raise Refused(f"a {type(spec).__name__} is refused, nothing is emitted for it:{reasons}", refusals)

    def gate(self, usage: Usage, spec: Spec) -> tuple[Refusal, ...]:
        """Return every refusal of every plugin for compiled code.

        Who gates must also count what it gated, zero is a failure.
        """
        return self._collected("kinfolk_gate_resources", self._refusals, usage=usage, spec=spec, arch=self.arch)

    def reference(self, request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fp64 outputs by name; exactly one plugin must answer."""
        take: Callable[[Any], Mapping[str, Any] | None] = _instance_or_none(cast("type[Mapping[str, Any]]", Mapping))
        given = {"request": request, "inputs": _read_only(inputs)}
        return self._sole("kinfolk_reference", take, about=type(request).__name__, **given)

    def useful_flops(self, request: Request, candidate: str, inputs: Mapping[str, Any]) -> int | None:
        """Return the operations that inputs need by definition on the way of the candidate that serves them, or None
        where no plugin says; several may not.
        """
        given = {"request": request, "candidate": candidate, "inputs": _read_only(inputs)}
        return self._only("kinfolk_useful_flops", _count_or_none, about=type(request).__name__, **given)

    def check_outputs(
        self, request: Request, outputs: Mapping[str, Any], expected: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Return every finding of every plugin about the outputs."""
        from kinfolk.check import Finding

        given = {"request": request, "outputs": _read_only(outputs), "expected": expected}
        return self._collected("kinfolk_check_outputs", _instances(Finding), **given)

    def scenarios(self, request: Request) -> tuple[Any, ...]:
        """Return the scenarios of all plugins; a name given twice raises PluginError."""
        return self._named("kinfolk_scenarios", "scenario", _several, request=request)

    def scenarios_of(self, plan: Plan) -> tuple[Any, ...]:
        """Return the scenarios of a plan's request, pinned to its candidate: with keys or pages of their own, requests
        of scenarios might select another one.
        """
        pins = hasattr(plan.request, "candidate")
        return self.scenarios(attrs.evolve(plan.request, candidate=plan.candidate) if pins else plan.request)

    def mutation_requests(self) -> tuple[Request, ...]:
        """Return the requests in which mutants are run, of all plugins, in their order; each is a Request."""
        from kinfolk.request import Request

        return self._collected("kinfolk_mutation_requests", _instances(Request), arch=self.arch)

    def rank(self, request: Request, survivors: Sequence[T]) -> tuple[T, ...]:
        """Return the survivors as the policies order them, each policy in turn seeing what the one before it left."""
        order = tuple(survivors)
        for answerer in self._answerers.get("kinfolk_rank", ()):
            answer = answerer(_several_or_none, {"request": request, "survivors": order})
            if answer is None:
                continue
            if sorted(map(id, answer)) != sorted(map(id, order)):
                raise answerer.fault(
                    f"returned {len(answer)} survivors that are not a reordering of the {len(order)} it was given"
                )
            order = answer
        return order

    def ranking(self) -> tuple[str, ...]:
        """Return the policies that rank, by name and distribution."""
        return tuple(str(answerer.owner) for answerer in self._answerers.get("kinfolk_rank", ()))

    def _gathered_candidates(self) -> tuple[Candidate, ...]:
        from kinfolk.candidate import Candidate

        def take(answer: Any) -> tuple[Candidate, ...]:
            return self._of_distributions(_instances(Candidate)(answer))

        return self._named("kinfolk_candidates", "candidate", take, arch=self.arch)

    def _refusals(self, answer: Any) -> tuple[Refusal, ...]:
        return self._of_distributions(_instances(Refusal)(answer))

    def _of_distributions(self, items: tuple[P, ...]) -> tuple[P, ...]:
        """Return the answers; raise where one says that it is of a plugin that no distribution is."""
        for item in items:
            if not (item.plugin in self.versions or _is_installed(item.plugin)):
                named = " or ".join(name for name in self.versions if name != CORE)
                raise WrongAnswerError(f"names the plugin {item.plugin!r}, no distribution is; here: {named}")
        return items

    def _collected(self, hook: str, take: Callable[[Any], tuple[T, ...]], **given: object) -> tuple[T, ...]:
        return tuple(item for answerer in self._answerers.get(hook, ()) for item in answerer(take, given))

    def _named(self, hook: str, noun: str, take: Callable[[Any], tuple[T, ...]], **given: object) -> tuple[T, ...]:
        """Return all answers of all plugins; raise PluginError where two carry one name, naming both who gave it."""
        owners: dict[str, Loaded] = {}
        found: list[T] = []
        for answerer in self._answerers.get(hook, ()):
            for item in answerer(take, given):
                name = getattr(item, "name", None)
                if not isinstance(name, str):
                    raise answerer.fault(f"returned {shown(item)}, a {noun} has a name")
                if name in owners:
                    raise PluginError(f"{noun} {name} is given by {owners[name]} and by {answerer.owner}; rename one")
                owners[name] = answerer.owner
                found.append(item)
        return tuple(found)

    def _sole(self, hook: str, take: Callable[[Any], T | None], *, about: str = "", **given: object) -> T:
        """Return the one answer that is not None; none or several raise PluginError naming the plugins."""
        answer = self._only(hook, take, about=about, **given)
        if answer is not None:
            return answer
        names = ", ".join(str(answerer.owner) for answerer in self._answerers.get(hook, ())) or "no plugin"
        raise PluginError(f"{_about(hook, about)} is answered by none; exactly one must answer, asked: {names}")

    def _only(self, hook: str, take: Callable[[Any], T | None], *, about: str = "", **given: object) -> T | None:
        """Return the answer that is not None, None without one; several raise PluginError naming the plugins."""
        asked = self._answerers.get(hook, ())
        answers = [(answerer.owner, answer) for answerer in asked if (answer := answerer(take, given)) is not None]
        if len(answers) > 1:
            owners = " and by ".join(str(owner) for owner, _ in answers)
            raise PluginError(f"{_about(hook, about)} is answered by {owners}; exactly one may answer")
        return answers[0][1] if answers else None


def _about(hook: str, about: str) -> str:
    return f"{hook} for {about}" if about else hook


def arch_of(loaded: Loaded) -> Arch:
    """Return what a plugin of kind arch answers; HookFault or PluginError where that is not the arch of its name."""
    answerer = _registered((loaded,))["kinfolk_arch"][0]
    return answerer(_arch_named(loaded.offer.name), {})


def _registered(members: Iterable[Loaded]) -> Mapping[str, tuple[_Answerer, ...]]:
    """Register the members with a pluggy manager and return who answers each hook, in the members' order."""
    manager = pluggy.PluginManager("kinfolk")
    manager.add_hookspecs(hooks)
    owners: dict[str, Loaded] = {}
    for member in members:
        owners[str(member)] = member
        try:
            manager.register(member.plugin, str(member))
        except (ValueError, pluggy.PluginValidationError) as error:
            raise PluginError(f"{member} cannot be composed: {error}") from error
    manager.check_pending()
    answerers: dict[str, tuple[_Answerer, ...]] = {}
    for hook in (name for name, value in vars(hooks).items() if hasattr(value, "kinfolk_spec")):
        implementations = getattr(manager.hook, hook).get_hookimpls()
        answerers[hook] = tuple(
            _Answerer(owners[each.plugin_name], hook, each.function, tuple(each.argnames)) for each in implementations
        )
    return answerers


@functools.cache
def _is_installed(distribution: str) -> bool:
    import importlib_metadata

    try:
        return bool(distribution) and bool(importlib_metadata.version(distribution))
    except importlib_metadata.PackageNotFoundError:
        return any(canonical(offer.distribution) == canonical(distribution) for offer in catalog().every())


def _read_only(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same arrays as views that nobody writes through."""
    import numpy as np

    views: dict[str, Any] = {}
    for name, array in arrays.items():
        views[name] = array
        if isinstance(array, np.ndarray):
            views[name] = cast("Any", array).view()
            views[name].flags.writeable = False
    return MappingProxyType(views)


def _several(answer: Any) -> tuple[Any, ...]:
    if answer is None or isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise WrongAnswerError(f"returned {shown(answer)}, it returns an iterable, which may be empty")  # pyright: ignore[reportUnknownArgumentType]
    return tuple(bounded(cast("Iterable[Any]", answer)))


def _several_or_none(answer: Any) -> tuple[Any, ...] | None:
    return None if answer is None else _several(answer)


def _instances(kind: type[T]) -> Callable[[Any], tuple[T, ...]]:
    def take(answer: Any) -> tuple[T, ...]:
        items = _several(answer)
        for item in items:
            if not isinstance(item, kind):
                raise WrongAnswerError(f"returned {shown(item)} among its answers, each is a {kind.__name__}")
        return items

    return take


def _instance_or_none(kind: type[T]) -> Callable[[Any], T | None]:
    def take(answer: Any) -> T | None:
        if answer is None or isinstance(answer, kind):
            return answer
        raise WrongAnswerError(f"returned {shown(answer)}, it returns a {kind.__name__} or None")

    return take


def _count_or_none(answer: Any) -> int | None:
    if answer is None or (type(answer) is int and answer >= 0):
        return answer
    raise WrongAnswerError(f"returned {shown(answer)}, it returns an int of at least 0, or None")


def _arch_named(name: str) -> Callable[[Any], Arch]:
    def take(answer: Any) -> Arch:
        from kinfolk.arch import Arch

        if not isinstance(answer, Arch):
            raise WrongAnswerError(f"returned {shown(answer)}, it returns an Arch")
        if answer.name != name:
            raise WrongAnswerError(f"returned the arch {answer.name!r}, the entry point offers {name!r}")
        return answer

    return take


def _request_of(family: str) -> Callable[[Any], type[Request]]:
    def take(answer: Any) -> type[Request]:
        from kinfolk.request import Request

        if not (isinstance(answer, type) and issubclass(answer, Request)):
            raise WrongAnswerError(f"returned {shown(answer)}, it returns a subclass of Request")  # pyright: ignore[reportUnknownArgumentType]
        named = getattr(answer, "family", None)
        if named != family:
            raise WrongAnswerError(f"returned {answer.__name__} of family {named!r}, the entry point offers {family!r}")
        return answer

    return take


_compositions: Final[dict[tuple[str, str], tuple[Catalog, Composition]]] = {}


def compose(family: str, arch: str) -> Composition:
    """Return the composition of a family and an arch by name, built once per process.

    Imports these two and the active policies, no other plugin. Raises UnknownPlugin, which lists what is installed, and
    UnusablePlugin or HookFault where the family or the arch is at fault; a policy that cannot be loaded is not active.
    """
    for kind, name in (("family", family), ("arch", arch)):
        if type(cast("object", name)) is not str:
            raise TypeError(f"compose takes an {kind} by its name, a str, got {shown(name)} of {type(name).__name__}")
    known = catalog()
    found = _compositions.get((family, arch))
    if found is None or found[0] is not known:
        with LOCK:
            known = catalog()
            found = _compositions.get((family, arch))
            if found is None or found[0] is not known:
                found = known, Composition(load("family", family), load("arch", arch), _active_policies())
                _compositions[family, arch] = found
    return found[1]


def request_type_of(family: str) -> type[Request]:
    """Return the Request class of a family by name; imports that family and no other plugin. Raises as `compose`."""
    loaded = load("family", family)
    [answerer] = _registered((loaded,))["kinfolk_request_type"]
    return answerer(_request_of(family), {})


def _active_policies() -> tuple[Loaded, ...]:
    """Return the policies that can be loaded, in order of their names.

    The others are states that `kinfolk list` shows.
    """
    active: list[Loaded] = []
    for name in sound("policy"):
        try:
            policy = load("policy", name)
        except UnusablePlugin:
            continue
        if all(policy.plugin is not other.plugin for other in active):
            active.append(policy)
    return tuple(active)


__all__ = ["BUILTIN", "Composition", "compose", "request_type_of"]
