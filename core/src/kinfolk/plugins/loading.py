"""Importing one plugin when it is first used, and keeping what went wrong for everyone who asks later."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Final, Protocol

import attrs

from kinfolk.errors import PluginError
from kinfolk.hooks import facts_schema as core_facts_schema
from kinfolk.hooks import kinfolk_api
from kinfolk.plugins import discovery
from kinfolk.plugins.containment import entered
from kinfolk.plugins.discovery import LOCK, Offer, catalog, conflict_of
from kinfolk.plugins.faults import KINDS, State, UnknownPlugin, UnusablePlugin, sentence_of
from kinfolk.plugins.validation import rejections, takes_hooks


@attrs.frozen(eq=False)
class Loaded:
    """A plugin that was imported and is what it says."""

    offer: Offer
    plugin: object

    def __str__(self) -> str:
        return str(self.offer)


class ImportGuard(Protocol):
    """What a program puts around imports that it must survive; the command line has one."""

    def importing(self, offer: Offer) -> AbstractContextManager[None]:
        """Return what a plugin is imported in."""
        ...

    def judged(self, offers: Sequence[Offer]) -> Mapping[Offer, tuple[State, str]]:
        """Return how plugins that nobody asked for by name stand, found without importing them here."""
        ...


_guards: Final[list[ImportGuard]] = []
_loaded: Final[dict[Offer, Loaded | UnusablePlugin]] = {}
_importing: Final[set[Offer]] = set()


def guard_imports(guard: ImportGuard) -> None:
    """Put a guard around every later import of a plugin in this process, in place of an earlier one."""
    _guards[:] = [guard]


def sound(kind: str) -> tuple[str, ...]:
    """Return the names of a kind that may be imported, without those that a guard of imports finds broken.

    For plugins that are used although nobody asked for them: a broken one is left out.
    """
    with LOCK:
        offers = [offer for name in usable(kind) if (offer := _permitted(kind, name)) is not None]
        unknown = [offer for offer in offers if offer not in _loaded and not offer.registered]
        for guard in _guards if unknown else ():
            for offer, (state, cause) in guard.judged(unknown).items():
                if state is not State.OK:
                    _loaded[offer] = UnusablePlugin(offer.kind, offer.name, offer.distribution, state, cause)
        return tuple(offer.name for offer in offers if not isinstance(_loaded.get(offer), UnusablePlugin))


def installed(kind: str) -> tuple[str, ...]:
    """Return the names offered for a kind, in order, whatever their state; nothing is imported."""
    return catalog().names(kind)


def usable(kind: str) -> tuple[str, ...]:
    """Return the names of a kind that may be imported as far as metadata tells; nothing is imported."""
    known = catalog()
    return tuple(name for name in known.names(kind) if _permitted(kind, name) is not None)


def load(kind: str, name: str) -> Loaded:
    """Return the plugin of a kind by name, imported on first use.

    Raises UnknownPlugin, naming what is installed, and UnusablePlugin with state and cause; a failure is kept and
    raised again, so that a half imported package is not tried twice.
    """
    known = catalog()
    offers = known.offers.get((kind, name))
    if offers is None:
        raise UnknownPlugin(kind, name, known.names(kind), known.notes)
    offer = _permitted(kind, name)
    if offer is None:
        standings = [(known.standing(each), each) for each in offers]
        standing, offer = min(standings, key=lambda pair: pair[0].state is State.NOT_ALLOWED)
        raise UnusablePlugin(kind, name, offer.distribution, standing.state, standing.cause)
    found = _loaded.get(offer)
    if found is None:
        with LOCK:
            found = _loaded.get(offer) or _import(offer)
    if isinstance(found, UnusablePlugin):
        raise UnusablePlugin(found.kind, found.name, found.distribution, found.state, found.cause) from found.__cause__
    return found


def _permitted(kind: str, name: str) -> Offer | None:
    """Return the one offer of a name that metadata lets in, or None."""
    known = catalog()
    good = [offer for offer in known.offers[kind, name] if known.standing(offer).state is State.OK]
    return good[0] if len(good) == 1 else None


def _import(offer: Offer) -> Loaded | UnusablePlugin:
    if offer in _importing:
        raise PluginError(
            f"{offer} is used while it is being imported; a plugin may not dispatch, compose or load itself on import"
        )
    _importing.add(offer)
    try:
        result = _imported(offer)
    finally:
        _importing.discard(offer)
    _loaded[offer] = result
    return result


def _imported(offer: Offer) -> Loaded | UnusablePlugin:
    def unusable(state: State, cause: str) -> UnusablePlugin:
        return UnusablePlugin(offer.kind, offer.name, offer.distribution, state, cause)

    module, _, path = offer.value.partition(":")
    wrong: tuple[str, ...] = ()
    try:
        with contextlib.ExitStack() as around:
            for guard in _guards:
                around.enter_context(guard.importing(offer))
            around.enter_context(entered())
            plugin: object = importlib.import_module(module)
            for part in filter(None, path.split(".")):
                plugin = getattr(plugin, part)
            if takes_hooks(offer.kind):
                wrong = rejections(plugin, offer.kind)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a stranger's code, sys.exit and panics of native code included
        failed = unusable(State.IMPORT, sentence_of(error))
        failed.__cause__ = error
        return failed
    return unusable(State.REJECTED, "; ".join(wrong)) if wrong else Loaded(offer, plugin)


def register(
    kind: str,
    name: str,
    plugin: object,
    *,
    distribution: str = "",
    version: str = "",
    api: int = kinfolk_api,
    facts_schema: int = core_facts_schema,
    digest: str = "",
) -> None:
    """Make a plugin known that no metadata names, as in a frozen application.

    kind: family, arch, policy, executor, toolchain, command or check. plugin: a module, an instance, a tuple of checks,
    or `"module:attribute"`, which is imported when it is first used. distribution and version: what a plan records; by
    default the plugin's top-level package and its `__version__`. digest: of a policy whose files cannot be read.
    Registering the same again changes nothing. Raises PluginError, with nothing registered, if the plugin breaks a rule
    or its name is taken.
    """
    if kind not in KINDS:
        raise PluginError(f"register takes a kind of {', '.join(KINDS)}, got {kind!r}")
    value = plugin if isinstance(plugin, str) else _address(plugin)
    package = value.partition(":")[0].partition(".")[0]
    offer = Offer(
        kind=kind,
        name=name,
        value=value,
        distribution=distribution or package,
        version=version or str(getattr(sys.modules.get(package), "__version__", "unknown")),
        api=(str(api),),
        facts_schema=(str(facts_schema),),
        registered=True,
        digest=digest,
    )
    with LOCK:
        _add(offer, plugin)


def _add(offer: Offer, plugin: object) -> None:
    known = catalog().offers.get((offer.kind, offer.name), ())
    if offer in known and (isinstance(plugin, str) or _holds(offer, plugin)):
        return
    if rivals := [other for other in known if other.value != offer.value or other.registered]:
        raise UnusablePlugin(offer.kind, offer.name, offer.distribution, State.CONFLICT, conflict_of([offer, *rivals]))
    trial = discovery.Catalog(offers={(offer.kind, offer.name): (offer,)})
    standing = trial.standing(offer)
    if standing.state is not State.OK:
        raise UnusablePlugin(offer.kind, offer.name, offer.distribution, standing.state, standing.cause)
    if not isinstance(plugin, str):
        if takes_hooks(offer.kind) and (wrong := rejections(plugin, offer.kind)):
            raise UnusablePlugin(offer.kind, offer.name, offer.distribution, State.REJECTED, "; ".join(wrong))
        _loaded[offer] = Loaded(offer, plugin)
    discovery.add(offer)


def _holds(offer: Offer, plugin: object) -> bool:
    found = _loaded.get(offer)
    return isinstance(found, Loaded) and found.plugin is plugin


def _address(plugin: object) -> str:
    """Return where a plugin object comes from.

    A module's name, or the class of an instance as `module:Class instance`.
    """
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return f"{type(plugin).__module__}:{type(plugin).__qualname__} instance"
