"""Fetches data packages (Debian and npm) by name and unpacks them into a cache folder.

Uses the ordinary clients of the two registries; knows nothing of what is inside a package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path


def default_cache() -> Path:
    """Where packages are kept unless the caller says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tts-spec"


def debian_package(name: str, cache: Path) -> Path:
    """Folder with the files of Debian package ``name``, e.g. ``usr/share/...``; fetched once, not installed.

    Raises RuntimeError when ``apt-get`` or ``dpkg-deb`` is missing or fails.
    """

    def unpack(work: Path, root: Path) -> None:
        _command(["apt-get", "download", name], work)
        _command(["dpkg-deb", "-x", str(next(work.glob("*.deb"))), str(root)], work)

    return cached_folder(cache / "debian" / name, unpack)


def npm_package(name: str, version: str, cache: Path) -> Path:
    """Folder with the files of npm package ``name`` at ``version``; fetched once, its scripts are not run.

    Raises RuntimeError when ``npm`` is missing or fails.
    """

    def unpack(work: Path, root: Path) -> None:
        _command(["npm", "pack", "--ignore-scripts", f"{name}@{version}"], work)
        with tarfile.open(next(work.glob("*.tgz"))) as tar:
            tar.extractall(root, filter="data")

    return cached_folder(cache / "npm" / f"{name.replace('/', '-')}-{version}", unpack) / "package"


def cached_folder(target: Path, unpack: Callable[[Path, Path], None]) -> Path:
    """``target``, made by ``unpack(work folder, folder to fill)`` if it is not there yet; whole or not at all."""
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="fetch-", dir=target.parent))
        try:
            unpack(work, work / "root")
            (work / "root").rename(target)  # at once, so that an interrupted fetch leaves no half package
        finally:
            shutil.rmtree(work)
    return target


def _command(arguments: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f"{arguments[0]} is not installed; it is needed to fetch {arguments[-1]}") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
