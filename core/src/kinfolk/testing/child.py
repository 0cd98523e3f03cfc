"""What another process does for the check of determinism: emit specs, plan requests, draw inputs, and give digests."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from typing import Any, Final, cast

import numpy as np

from kinfolk.dispatch.select import judge
from kinfolk.flavor import Flavor, flavor_named
from kinfolk.ir.text import print_kernel
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.request import Request
from kinfolk.spec import Spec

SCENARIOS: Final = 3
"""Of so many scenarios of a request the inputs are compared."""


def digest(composition: Composition, spec: Spec) -> str:
    """Return the digest of a spec's kernel, emitted anew."""
    return hashlib.sha256(print_kernel(composition.emit(spec)).encode()).hexdigest()


def plan_text(composition: Composition, request: Request, flavor: Flavor) -> str:
    """Return the digest of the plans of all candidates for a request."""
    verdicts = judge(composition, request, flavor).verdicts
    texts = [each.plan.to_json() if each.plan else str(each.refusals) for each in verdicts]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def inputs_text(composition: Composition, request: Request) -> str:
    """Return the digest of what the first scenarios of a request give."""
    whole = [each for each in composition.scenarios(request) if not each.sparse]
    kept = hashlib.sha256()
    for scenario in whole[:SCENARIOS]:
        for name, array in sorted(scenario.inputs().items()):
            kept.update(f"{scenario.name} {name} {array.dtype} {array.shape}".encode())
            kept.update(np.ascontiguousarray(array).tobytes())
    return kept.hexdigest()


def loaded(address: dict[str, str]) -> Loaded:
    """Return a plugin by where it is imported from."""
    module, _, path = address["value"].partition(":")
    plugin: Any = importlib.import_module(module)
    for part in filter(None, path.split(".")):
        plugin = getattr(plugin, part)
    return Loaded(Offer(**cast("dict[str, Any]", address), registered=True), plugin)


def main() -> None:
    """Read what is asked from standard input, and print the digests."""
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    family, arch, *policies = [loaded(each) for each in asked["members"]]
    composition = Composition(family, arch, policies)
    flavor = flavor_named(asked["flavor"])
    kinds = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _spec_classes(composition, asked["flavor"])}
    specs = {text: kinds[json.loads(text)["class"]].from_json(text) for text in asked["specs"]}
    requests = {text: composition.request_type.from_json(text) for text in asked["requests"]}
    inputs = {text: composition.request_type.from_json(text) for text in asked["inputs"]}
    answer = {
        "specs": {text: digest(composition, spec) for text, spec in specs.items()},
        "inputs": {text: inputs_text(composition, request) for text, request in inputs.items()},
        "plans": {text: plan_text(composition, request, flavor) for text, request in requests.items()},
    }
    print(json.dumps(answer))


def _spec_classes(composition: Composition, flavor: str) -> set[type[Spec]]:
    return {type(spec) for each in composition.candidates() for spec in each.spec_space(composition.arch, flavor)}
