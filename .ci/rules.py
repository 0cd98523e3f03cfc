"""Rules of the source tree that no linter has: run over the project's files, each finding is a line and a failure.

Each rule takes a file's text (or its tree) and yields `line, what`; `RULES` says where it holds. Standard library only.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 80
ENVIRONMENT = ("KINFOLK_PLUGINS", "KINFOLK_DISABLE_AUTOLOAD", "KINFOLK_CACHE_DIR")

Finding = tuple[int, str]

# Split, so that this file does not hold what it forbids.
FORBIDDEN_TEXT = {
    "a path of one machine": re.compile(r"(?<![\w.$}])/(?:wor" r"k|far" r"m|roo" r"t|hom" r"e|tm" r"p)/\w"),
    "the host of a package registry": re.compile(
        r"(?i)https?://[\w.-]*(?:registry|hosted|pypi|npmjs|debian)\b|pypi\."
        r"org|python"
        r"hosted|npmjs\."
        r"(?:org|com)"
    ),
    "an index of packages": re.compile(r"--(?:extra-)?index" r"-url|find" r"-links"),
}


def machine_and_registry_names(text: str) -> Iterator[Finding]:
    """Find what would tie the project to the machine it was written on."""
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in FORBIDDEN_TEXT.items():
            if match := pattern.search(line):
                yield number, f"names {what}: {match.group()!r}"


def arch_strings(text: str) -> Iterator[Finding]:
    """Find string constants that begin with an arch's name: core, families and what archs share ask for facts, never
    for names. Only the module that takes target ids apart knows how a name begins.
    """
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.lstrip().lower().startswith("gfx")
        ):
            yield node.lineno, f"holds the arch name {node.value.strip()[:30]!r}; ask the arch for a fact instead"


def environment_reads(text: str) -> Iterator[Finding]:
    """Find reads of the environment other than the three tool-level settings: a knob is a spec field."""
    tree = ast.parse(text)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def read_name(node: ast.expr) -> object:
        return constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)

    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        for environ, name in _named_reads(node):
            if read_name(name) in ENVIRONMENT:
                allowed.add(environ)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("environ", "environb", "getenv", "putenv")
            and node not in allowed
        ):
            yield node.lineno, f"os.{node.attr} for something else than {', '.join(ENVIRONMENT)}; make it a spec field"
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {name.name for name in node.names}
        ):
            yield node.lineno, "imports environ from os, where this rule cannot follow it; write os.environ"


def _named_reads(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield (the environ or getenv node, the name read) for the forms of a read that name one variable."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ") as environ), args=[name, *_]):
            yield environ, name
        case ast.Call(func=ast.Attribute(attr="getenv") as getenv, args=[name, *_]):
            yield getenv, name
        case ast.Subscript(value=ast.Attribute(attr="environ") as environ, slice=name):
            yield environ, name
        case ast.Compare(
            left=name, ops=[ast.In() | ast.NotIn()], comparators=[ast.Attribute(attr="environ") as environ]
        ):
            yield environ, name


def long_file(text: str) -> Iterator[Finding]:
    """Find a file that is more than one thing."""
    if (count := len(text.splitlines())) > FILE_LINES:
        yield count, f"has {count} lines, at most {FILE_LINES}; give its parts names"


def long_functions(text: str) -> Iterator[Finding]:
    """Find functions that hide stages; decorators and docstring count."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            count = (node.end_lineno or node.lineno) - first + 1
            if count > FUNCTION_LINES:
                yield first, f"{node.name} has {count} lines, at most {FUNCTION_LINES}; give its stages names"


def tests_in_need(text: str) -> Iterator[Finding]:
    """Find the marker `needs` beside one distribution, whose tests run from its wheel with nothing else installed."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\bmark\.needs\(", line):
            yield number, "needs what another distribution brings; tests that cross distributions stand in tests/"


def nameless_module(path: str) -> bool:
    """Return whether a module's name says nothing about its content."""
    return Path(path).stem in ("utils", "util", "common", "helpers", "helper", "misc")


Rule = Callable[[str], Iterator[Finding]]
# Which files each rule reads, as an expression that the whole path from the root matches.
RULES: tuple[tuple[Rule, str], ...] = (
    (machine_and_registry_names, r".*"),
    (arch_strings, r"(core|plugins/[^/]+|arch/amdgcn(?!/src/kinfolk_amdgcn/target\.py))/src/.*\.py"),
    (environment_reads, r"(core|runtime|(arch|plugins)/[^/]+)/src/.*\.py"),
    (long_file, r"(core|runtime|(arch|plugins)/[^/]+)/src/.*\.py"),
    (long_functions, r"(core|runtime|(arch|plugins)/[^/]+)/src/.*\.py"),
    (tests_in_need, r"(core|runtime|(arch|plugins)/[^/]+)/tests/.*\.py"),
)


def check(name: str, text: str) -> list[str]:
    """Return the findings of every rule that holds for the file `name` (a path from the root) with content `text`."""
    found = (
        [f"{name}: is named for nothing it holds"] if re.match(r".*/src/.*\.py", name) and nameless_module(name) else []
    )
    for rule, where in RULES:
        if re.fullmatch(where, name):
            try:
                found += [f"{name}:{line}: {what}" for line, what in rule(text)]
            except SyntaxError as error:
                running = f"{sys.version_info.major}.{sys.version_info.minor}"
                found.append(f"{name}:{error.lineno}: is no python {running}: {error.msg}")
                break
    return found


def check_tree(root: Path) -> tuple[int, list[str]]:
    """Return how many of git's text files under `root` were read, and all findings."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    count, found = 0, list[str]()
    for name in sorted(set(filter(None, names))):
        path = root / name
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        count += 1
        found += check(name, text)
    return count, found


def main() -> int:
    count, found = check_tree(ROOT)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"rules: {count} files, {len(found)} findings")
    return int(bool(found) or count == 0)


if __name__ == "__main__":
    sys.exit(main())
