"""Distributions to begin with: `kinfolk new` writes one of the folders beside this file under a name of your own.

Each is a whole distribution that nobody installs. It is written and tested as it stands, and a copy differs from it in
nothing but the name, so that there is no second text that could fall behind.
"""

from __future__ import annotations

import io
import keyword
import re
import shutil
import tempfile
import tokenize
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

import attrs

from kinfolk.errors import Refused
from kinfolk.plugins.discovery import catalog
from kinfolk.refusal import Refusal

NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
LONGEST_NAME: Final = 40


@attrs.frozen
class Template:
    """A distribution in the folder `folder` that offers a plugin of `kind` under `name`, which a copy exchanges."""

    kind: str
    folder: str
    name: str

    def files(self) -> dict[PurePosixPath, str]:
        """Return the texts of the distribution by their paths in it."""
        return dict(sorted(_texts(resources.files(__name__) / self.folder, PurePosixPath())))

    def renamed(self, name: str) -> dict[PurePosixPath, str]:
        """Return the texts under another name; raise Refused for one that is none, is taken, or means two things."""
        check_name(self.kind, name)
        old, new = forms(self.name), forms(name)
        renamer = re.compile("|".join(map(re.escape, old)))
        by_form = dict(zip(old, new, strict=True))

        def rename(text: str) -> str:
            return renamer.sub(lambda found: by_form[found[0]], text)

        texts = self.files()
        for path, text in texts.items():
            words = _identifiers(text) if path.suffix == ".py" else frozenset[str]()
            kept = {word for word in words if rename(word) == word}
            if twice := sorted(kept & {rename(word) for word in words - kept}):
                because = f"{path} would call two things {twice[0]}"
                raise _refused(name, f"a name that gives no {twice[0]}", because)
        return {PurePosixPath(rename(str(path))): rename(text) for path, text in texts.items()}

    def write(self, name: str, folder: Path) -> tuple[Path, ...]:
        """Write the distribution under a name to a folder that does not exist yet, and return its files.

        Raises Refused for a name that `renamed` refuses and for a folder that exists, OSError where it cannot be
        written; what was written until then is gone.
        """
        texts = self.renamed(name)
        if folder.exists() or folder.is_symlink():
            raise _refused(
                str(folder),
                "a folder that does not exist yet",
                "nothing that lies there is overwritten",
                "Name another with -o, or move this one away.",
                field="folder",
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for path, text in texts.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8", newline="\n")
            made.chmod(0o755)
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        return tuple(folder / path for path in texts)


TEMPLATES: Final[Mapping[str, Template]] = MappingProxyType(
    {
        "family": Template("family", "family", "row_softmax"),
        "arch": Template("arch", "arch", "toy_simt"),
    }
)
"""What can be written, by kind of plugin."""


def forms(name: str) -> tuple[str, str, str]:
    """Return a name as modules, distributions and classes have it: `row_softmax`, `row-softmax`, `RowSoftmax`."""
    return name, name.replace("_", "-"), "".join(word[0].upper() + word[1:] for word in name.split("_"))


def check_name(kind: str, name: str) -> None:
    """Raise Refused unless a plugin, its package `kinfolk_NAME` and its distribution `kinfolk-NAME` can have a name."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > LONGEST_NAME:
        limit = f"words of a-z and 0-9 joined by single underscores, at most {LONGEST_NAME} characters, no keyword"
        like = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_0123456789")
        like = like[:LONGEST_NAME].strip("_")
        remedy = f"Name it {like}." if like != name and _is_free(kind, like) else "Name it like column_scale."
        raise _refused(name, limit, "it names a package, a distribution, classes and functions", remedy)
    _, hyphened, _ = forms(name)
    for offer in catalog().offers.get((kind, name), ()):
        raise _refused(name, "a name that nothing installed has", f"{offer.distribution} offers this {kind}")
    for taken in (f"kinfolk-{hyphened}" if _is_distribution(f"kinfolk-{hyphened}") else "", f"kinfolk_{name}"):
        if taken and (taken.startswith("kinfolk-") or find_spec(taken) is not None):
            raise _refused(name, "a name that nothing installed has", f"{taken} is installed")


def _is_free(kind: str, name: str) -> bool:
    try:
        check_name(kind, name)
    except Refused:
        return False
    return True


def _is_distribution(name: str) -> bool:
    import importlib_metadata

    return any(True for _ in importlib_metadata.distributions(name=name))  # pyright: ignore


def _refused(
    value: str, limit: str, because: str, remedy: str = "Choose another name.", *, field: str = "name"
) -> Refused:
    refusal = Refusal(
        code=f"new.{field}",
        kind="invalid",
        field=field,
        value=value,
        limit=limit,
        because=because,
        remedy=remedy,
        plugin="kinfolk-core",
    )
    return Refused(str(refusal), (refusal,))


def _texts(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in folder.iterdir():
        if entry.name.startswith((".", "__pycache__")):  # what tools leave where the tests ran
            continue
        if entry.is_dir():
            yield from _texts(entry, path / entry.name)
        else:
            yield path / entry.name, entry.read_text(encoding="utf-8")


def _identifiers(text: str) -> frozenset[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME)
