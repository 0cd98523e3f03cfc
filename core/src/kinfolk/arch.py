"""An arch as core sees it: facts by name, matrix atoms, ops, and how its kernels become code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import attrs

from kinfolk.errors import KinfolkError, PluginError, Refused
from kinfolk.fields import shown
from kinfolk.ir.op import OpDef, OpTable
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import ScalarType, Type, element_type
from kinfolk.machine import Machine, MachineFunction
from kinfolk.matrix import FACT_PREFIX, MatrixCatalog
from kinfolk.plugins.containment import WrongAnswerError, contained
from kinfolk.roles import ROLE_FACT, ROLES, check_roles, op_for_role

if TYPE_CHECKING:
    from kinfolk.banks import BankModel
    from kinfolk.ir.value import Kernel
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

T = TypeVar("T")
Fact = int | str | bool

BOUNDS: Final = ("workgroup_threads", "workgroup_bytes")
"""What `Arch.bounds` can name a fact for: the most threads of a workgroup, the most bytes of its memory."""


class UnknownFact(KinfolkError, AttributeError):
    """The arch declares no fact of that name; the message lists those it does."""


class Facts(Mapping[str, Fact]):
    """The facts that an arch declares, and those that follow from the rest of it.

    These are `wave_size`, whether it has an atom, by the name that `kinfolk.matrix.atom_fact` gives, and whether it has
    an op in a role, by that of `kinfolk.roles.role_fact`; only declared ones and `wave_size` are listed.
    """

    def __init__(
        self, declared: Mapping[str, Fact], wave_size: int, matrix: MatrixCatalog, roles: Iterable[str] = ()
    ) -> None:
        self.declared: Mapping[str, Fact] = MappingProxyType(dict(declared))
        self._listed: Mapping[str, Fact] = MappingProxyType({**declared, "wave_size": wave_size})
        self._matrix = matrix
        self._roles = frozenset(roles)

    def __getitem__(self, name: str) -> Fact:
        if name.startswith(ROLE_FACT) and name.removeprefix(ROLE_FACT) in ROLES:
            return name.removeprefix(ROLE_FACT) in self._roles
        return self._matrix.fact(name) if name.startswith(FACT_PREFIX) else self._listed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


@attrs.frozen(kw_only=True)
class LoweredModule:
    """A kernel as LLVM IR text, with the target it is written for.

    `code` is what the compiler makes of it: an object, or `assembly` for a target whose LLVM writes text alone.
    """

    symbol: str
    text: str
    triple: str
    cpu: str
    features: str = ""
    options: Mapping[str, str] = attrs.field(factory=dict[str, str])
    code: Literal["object", "assembly"] = "object"


@attrs.frozen(kw_only=True, eq=False)
class Arch:
    """One instruction set. Families ask it for facts and atoms, never for its name.

    `facts` are numbers and flags in the units of their names (`lds_bytes`, `compute_units`), to which `Facts` adds what
    follows from the other fields; they read as attributes too. `target_ids` are the compiler's names of it. `ops` are
    its own ops, `roles` says what some of them are good for (`kinfolk.roles`), `lacking` names portable ops it does not
    have with what to use instead; `lacking_types` names, per portable op that it has, the element types of operands and
    results for which it has none, with what to use instead.
    `bounds` names the fact, by a name of `BOUNDS`, that a kernel is held to when it is built. `banks` says how its
    workgroup memory serves lanes, `machine` how its machine code is read, None where that is not declared.
    `lower_kernel(kernel, arch, spec, llvm)` writes LLVM IR for an LLVM generation; `read_usage(object, symbol, arch)`
    reads what the compiler produced.
    """

    name: str
    target_ids: tuple[str, ...]
    wave_size: int
    facts: Mapping[str, Fact] = attrs.field(repr=False)
    matrix: MatrixCatalog = attrs.field(repr=False)
    ops: tuple[OpDef, ...] = attrs.field(default=(), repr=False)
    roles: Mapping[str, OpDef] = attrs.field(factory=dict[str, OpDef], repr=False)
    lacking: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    lacking_types: Mapping[str, Mapping[ScalarType, str]] = attrs.field(
        factory=dict[str, Mapping[ScalarType, str]], repr=False
    )
    bounds: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    banks: BankModel | None = attrs.field(default=None, repr=False)
    machine: Machine | None = attrs.field(default=None, repr=False)
    lower_kernel: Callable[[Kernel, Arch, Spec | None, int], LoweredModule] = attrs.field(repr=False)
    read_usage: Callable[[bytes, str, Arch], Usage] = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_roles(self.name, self.roles, self.ops)
        if self.banks is not None:
            self.banks.check(self.name, self.wave_size)
        declared = self.facts.declared if isinstance(self.facts, Facts) else self.facts
        if (waves := declared.get("wave_size", self.wave_size)) != self.wave_size:
            raise PluginError(f"{self.name} has waves of {self.wave_size}, and declares the fact wave_size = {waves!r}")
        object.__setattr__(self, "facts", Facts(declared, self.wave_size, self.matrix, self.roles))
        for name in ("roles", "lacking", "bounds"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        without = {op: MappingProxyType(dict(types)) for op, types in self.lacking_types.items()}
        object.__setattr__(self, "lacking_types", MappingProxyType(without))
        for name, fact in self.bounds.items():
            if name not in BOUNDS or type(declared.get(fact)) is not int:
                raise PluginError(
                    f"{self.name} bounds {name} by its fact {fact!r} = {declared.get(fact)!r}; bounds are "
                    f"{' and '.join(BOUNDS)}, each by a declared fact that is an int"
                )

    def bound(self, name: str) -> tuple[str, int] | None:
        """Return the fact, with its number, that bounds kernels in a way of `BOUNDS`; None where none is declared."""
        fact = self.bounds.get(name)
        return None if fact is None else (fact, int(self.facts[fact]))

    @cached_property
    def op_table(self) -> OpTable:
        """The portable ops and this arch's own."""
        return OpTable(self.ops + tuple(atom.op for atom in self.matrix), parent=CORE_OPS)

    def fact(self, name: str) -> Fact:
        """Return a fact; raise `UnknownFact` for a name that is not declared."""
        if name not in self.facts:
            raise UnknownFact(f"{self.name} declares no fact {name!r}; it declares: {', '.join(sorted(self.facts))}")
        return self.facts[name]

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self.fact(name)
        if not isinstance(value, int):
            raise UnknownFact(f"{self.name}.{name} is {value!r}, not a number; read it with fact({name!r})")
        return value

    def has(self, op: str, *types: Type) -> bool:
        """Whether an op of this name is legal here, with operands and results of these types among others."""
        return op in self.op_table and self.lacks(op, *types) is None

    def lacks(self, op: str, *types: Type) -> str | None:
        """Return what to use instead of a portable op this arch does not have, or not for one of the types of its
        operands and results; None for one it has."""
        if op in self.lacking or op not in self.lacking_types:
            return self.lacking.get(op)
        without = self.lacking_types[op]
        return next((without[element] for element in map(element_type, types) if element in without), None)

    def op_for(self, role: str) -> OpDef:
        """Return the op in a role of `kinfolk.roles`; raise IllegalOp, naming what is missing and what of its kind
        the arch has instead, where it has none."""
        return op_for_role(self.name, role, self.roles)

    def lower(self, kernel: Kernel, spec: Spec | None, llvm: int) -> LoweredModule:
        """Return the kernel as LLVM IR for the LLVM generation `llvm`."""
        return contained(
            f"arch {self.name}",
            "lower_kernel",
            self.lower_kernel,
            kernel,
            self,
            spec,
            llvm,
            take=_instance(LoweredModule),
            passing=(KinfolkError,),
        )

    def usage(self, code: bytes, symbol: str) -> Usage:
        """Return what the compiled kernel uses, read from its code object."""
        from kinfolk.usage import Usage

        return contained(
            f"arch {self.name}",
            "read_usage",
            self.read_usage,
            code,
            symbol,
            self,
            take=_instance(Usage),
            passing=(KinfolkError,),
        )

    def machine_code(
        self, data: bytes, disassembly: str | None = None, given: Mapping[str, int] | None = None
    ) -> tuple[MachineFunction, ...]:
        """Return the kernels in assembly text, or in an object with its disassembly; see `kinfolk.machine.Machine`.

        Raises Refused where the arch declares no way to read its machine code.
        """
        if self.machine is None:
            raise _no_machine(self.name)
        return contained(
            f"arch {self.name}",
            "Machine.read",
            self.machine.read,
            data,
            disassembly,
            dict(given or {}),
            self,
            take=_functions,
            passing=(KinfolkError,),
        )


def _no_machine(name: str) -> Refused:
    from kinfolk.refusal import Refusal

    refusal = Refusal(
        code="arch.machine",
        kind="not_implemented",
        field="arch",
        value=name,
        limit="an arch whose machine code can be read",
        because="it declares no Machine",
        remedy="Its plugin can give its Arch one: see kinfolk.machine.",
        plugin=f"arch {name}",
    )
    return Refused(str(refusal), (refusal,))


def _functions(answer: Any) -> tuple[MachineFunction, ...]:
    if type(answer) is not tuple or not all(isinstance(e, MachineFunction) for e in cast("tuple[Any, ...]", answer)):
        raise WrongAnswerError(f"returned {shown(cast('object', answer))}, it returns a tuple of MachineFunction")
    return cast("tuple[MachineFunction, ...]", answer)


def _instance(kind: type[T]) -> Callable[[Any], T]:
    def take(answer: Any) -> T:
        if not isinstance(answer, kind):
            raise WrongAnswerError(f"returned {shown(answer)}, it returns a {kind.__name__}")
        return answer

    return take
