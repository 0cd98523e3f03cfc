"""Entries on disk: a payload and a manifest that says what the payload must be.

A file is written beside its place under a name of its own and renamed, the manifest last, so a reader sees a whole file
or none. There are no locks: writers of one key write the same bytes. What does not match its manifest is a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import attrs

from kinfolk.errors import KinfolkError
from kinfolk_runtime.storage import storage_root

LOG: Final = logging.getLogger(__name__)
SCHEMA: Final = 1
MANIFEST_BYTES: Final = 1 << 20  # a longer one is none of ours
PAYLOAD_BYTES: Final = 1 << 30
SEAL_BYTES: Final = 32
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

State = Literal["ok", "damaged", "unfinished"]

_warned: Final[set[str]] = set()


class CacheError(KinfolkError):
    """The cache's place is set to something that cannot be a folder, or cannot be cleared."""


@attrs.frozen(kw_only=True)
class Entry:
    """One entry, or what a writer left unfinished: its files, what they take, what the manifest says of the payload."""

    kind: str
    key: str
    state: State
    files: tuple[Path, ...]
    bytes: int
    about: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(kw_only=True)
class Store:
    """Payloads of one kind by key, 64 hex digits. `suffix` names the payload's file."""

    kind: str
    suffix: str

    def read(self, key: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """Return payload and description of a key; None where there is none, or none that is what it claims to be."""
        payload, manifest = self._files(key)
        try:
            described = _read(manifest, MANIFEST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._miss(key, str(error))
        try:
            claimed = _claims(described, key)
            length, digest = _file_claim(claimed, payload.name)
            content = _read(payload, length)
            if len(content) != length or hashlib.sha256(content).hexdigest() != digest:
                return self._miss(key, "the payload is not what its manifest describes")
            return content, cast("Mapping[str, Any]", claimed["about"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            return self._miss(key, f"{type(error).__name__}: {error}")

    def write(self, key: str, content: bytes, about: Mapping[str, Any]) -> None:
        """Keep a payload, in place of whatever is there. Where it cannot be kept, that is logged once and no error."""
        payload, manifest = self._files(key)
        claims = {
            "schema": SCHEMA,
            "key": key,
            "files": {payload.name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}},
            "about": dict(about),
        }
        described = json.dumps({**claims, "manifest_sha256": _digest(claims)}, sort_keys=True, indent=1).encode()
        try:
            _put(payload, content)
            _put(manifest, described)
        except OSError as error:
            reason = error.strerror or type(error).__name__  # without names: those of files that are written are random
            _warn_once(f"the cache in {storage_root()} cannot be written, kernels are compiled anew: {reason}")

    def entries(self) -> Iterator[Entry]:
        """Yield every entry and every unfinished file, in order; each entry is read whole and judged."""
        unfinished: list[Path] = []
        keys: dict[str, list[Path]] = {}
        for path in self.own_files():
            named = _named(path.name, self.suffix)
            if named is None:
                unfinished.append(path)
            else:
                keys.setdefault(named, []).append(path)
        for key, paths in keys.items():
            found = self.read(key)
            state: State = "ok" if found else "damaged"
            about: Mapping[str, Any] = found[1] if found else {}
            size = sum(map(_size, paths))
            yield Entry(kind=self.kind, key=key, state=state, files=tuple(paths), bytes=size, about=about)
        for path in unfinished:
            yield Entry(kind=self.kind, key="", state="unfinished", files=(path,), bytes=_size(path))

    def own_files(self) -> Iterator[Path]:
        """Yield the files that this store has written or begun to write, by their names, in order."""
        for folder in self.own_folders():
            for path in _listed(folder):
                if _is_own(path.name, folder.name, self.suffix) and not _is_folder(path):
                    yield path

    def own_folders(self) -> Iterator[Path]:
        """Yield the folders that hold entries; a link is not followed."""
        kind = storage_root() / self.kind
        if _is_folder(kind):
            for path in _listed(kind):
                if re.fullmatch("[0-9a-f]{2}", path.name) and _is_folder(path):
                    yield path

    def clear(self) -> int:
        """Delete what this store has written and return how many files that were; anything else stays where it is.

        Raises CacheError where a file cannot be deleted.
        """
        removed = 0
        for path in list(self.own_files()):
            try:
                path.unlink()
                removed += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CacheError(f"{path} cannot be deleted: {error.strerror}. {removed} files were") from error
        for folder in (*self.own_folders(), storage_root() / self.kind):
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()
        return removed

    def _files(self, key: str) -> tuple[Path, Path]:
        folder = storage_root() / self.kind / key[:2]
        return folder / f"{key}{self.suffix}", folder / f"{key}.json"

    def _miss(self, key: str, why: str) -> None:
        LOG.info("%s of %s in the cache is of no use and will be replaced: %s", self.kind, key, why)


@attrs.frozen(kw_only=True)
class SealedStore(Store):
    """As `Store`, for payloads so many and small that each is one file: a digest of key and payload, then the payload.

    An entry has no description.
    """

    def read(self, key: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """Return the payload of a key, with nothing said of it; None as in `Store`."""
        try:
            whole = _read(self._files(key)[0], PAYLOAD_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._miss(key, str(error))
        seal, content = whole[:SEAL_BYTES], whole[SEAL_BYTES:]
        if seal != _seal(key, content):
            return self._miss(key, "the file is not what was written under this key")
        return content, {}

    def write(self, key: str, content: bytes, about: Mapping[str, Any] = NOTHING) -> None:
        """Keep a payload, in place of whatever is there. Where it cannot be kept, nothing is said."""
        with contextlib.suppress(OSError):
            _put(self._files(key)[0], _seal(key, content) + content)


OBJECTS: Final = Store(kind="objects", suffix=".o")
LOWERED: Final = Store(kind="lowered", suffix=".ll")
SIMULATOR: Final = SealedStore(kind="simulator", suffix=".o")
MUTATION: Final = SealedStore(kind="mutation", suffix=".outcome")


def stores() -> tuple[Store, ...]:
    """Return every store, after a look at the place they are in; CacheError where that is no folder and set so."""
    root = storage_root()
    try:
        nearest = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
        if os.environ.get("KINFOLK_CACHE_DIR") and not nearest.is_dir() and nearest != root.parents[-1]:
            what = "a file" if nearest.exists() else "a link to nothing"
            raise CacheError(
                f"KINFOLK_CACHE_DIR is {root}, and {nearest} is {what}: set it to a folder, which need not exist, "
                "or unset it for the platform's cache folder"
            )
    except OSError:
        pass  # whether it can be used shows when it is used
    return OBJECTS, LOWERED, SIMULATOR, MUTATION


def _seal(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def _digest(claims: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).hexdigest()


def _claims(described: bytes, key: str) -> dict[str, Any]:
    """Return what a manifest says, once it is known to be whole and about `key`; ValueError otherwise."""
    claims: Any = json.loads(described)
    if not isinstance(claims, dict):
        raise ValueError("the manifest is no object")
    found = cast("dict[str, Any]", claims)
    digest = found.pop("manifest_sha256", None)
    if digest != _digest(found):
        raise ValueError("the manifest is not as it was written")
    if found.get("schema") != SCHEMA:
        raise ValueError(f"the manifest has schema {found.get('schema')}, read is {SCHEMA}")
    if found.get("key") != key:
        raise ValueError(f"the manifest is about {found.get('key')}")
    return found


def _file_claim(claims: Mapping[str, Any], name: str) -> tuple[int, str]:
    claim = claims["files"][name]
    length: object = claim["bytes"]
    if type(length) is not int or not 0 <= length <= PAYLOAD_BYTES:
        raise ValueError(f"the manifest says {length!r} bytes")
    return length, str(claim["sha256"])


def _read(path: Path, most: int) -> bytes:
    """Return a regular file's content, one byte more than `most` at most; neither a pipe nor a device is waited for."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        return file.read(most + 1)


def _put(path: Path, content: bytes) -> None:
    """Write a file beside `path` and rename it; once more where the folder vanishes in between."""
    for last in (False, True):
        beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("xb") as file:
                    file.write(content)
                beside.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    beside.unlink()
                raise
            return
        except FileNotFoundError:
            if last:
                raise


def _is_own(name: str, folder: str, suffix: str) -> bool:
    """Return whether a name is an entry's file in that folder, or the name it had before it was renamed."""
    begun = re.fullmatch(r"\.(.+)\.\d+-[0-9a-f]{8}\.tmp", name)
    key = _named(begun[1] if begun else name, suffix)
    return key is not None and key.startswith(folder)


def _named(name: str, suffix: str) -> str | None:
    found = re.fullmatch(rf"([0-9a-f]{{64}})(?:{re.escape(suffix)}|\.json)", name)
    return found[1] if found else None


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _warn_once(message: str) -> None:
    """Log a warning the first time this process has it: no warning filter turns it into an error of the compile."""
    if message not in _warned:
        _warned.add(message)
        LOG.warning(message)
