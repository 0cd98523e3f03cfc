"""The plan of `paged_sum` on a fake device: code objects that say their arguments as JSON, tensors in its memory."""

from __future__ import annotations

import json

import attrs
import numpy as np
from paged_sum import Composed, everything, plan_of

from kinfolk.errors import ToolError
from kinfolk.usage import KernelArgument, Usage
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.binder import bind
from kinfolk_runtime.hip import HipExecutor
from kinfolk_runtime.hip.fake import FakeDriver

TARGET = "toy64:feature+:other-"


def read_usage(code, symbol, arch):
    """Return what a code object of these tests says of its kernel."""
    said = json.loads(code)
    if said["symbol"] != symbol:
        raise ToolError(f"the code object holds no kernel {symbol}; it holds {said['symbol']}")
    arguments = tuple(KernelArgument(**each) for each in said["arguments"])
    return Usage(symbol=symbol, target=said["target"], scratch_bytes=0, scratch_ops=0, figures={}, arguments=arguments)


class Coded(Composed):
    """A composition with a code object per launch."""

    target = "toy64:feature+"

    def __init__(self, toy):
        super().__init__(toy)
        facts = {**toy.arch.facts.declared, "compute_units": 5}
        self.arch = toy.arch = attrs.evolve(toy.arch, facts=facts, read_usage=read_usage)

    def code(self, launch):
        layout = [attrs.asdict(each) for each in argument_layout(launch.spec.parameters())]
        return json.dumps({"symbol": launch.spec.symbol(), "target": self.target, "arguments": layout}).encode()


class OnDevice:
    """The plan bound for a fake device; `bind` and `run` take numpy arrays, which are adopted as its memory."""

    def __init__(self, toy, **device):
        self.composed = Coded(toy)
        self.fake = FakeDriver(self.composed.arch, **{"target": TARGET} | device)
        self.fake.teach(plan_of(), self.composed)
        self.executor = HipExecutor(driver=self.fake)

    def adopted(self, given):
        return {name: self.fake.adopt(one) if isinstance(one, np.ndarray) else one for name, one in given.items()}

    def bind(self, given, plan=None, executor=None, **options):
        return bind(
            plan or plan_of(), given, executor or self.executor, composition=options.pop("composed", self.composed)
        )

    def run(self, given, plan=None):
        bound = self.bind(self.adopted(given), plan)
        outputs = bound()
        self.executor.synchronize()
        return bound, outputs


def given_everything():
    """Return fresh arrays for every binding, outputs not zero."""
    given = everything()
    given["out"][...] = 77
    given["sums"][...] = 77
    return given
