"""Programs of this host that the images need, each with the shared libraries that it loads."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from images.archive import Entry
from toolchain.errors import ToolchainError

# The official images are Ubuntu: health checks and one-shot jobs may count on a shell and a few small tools.
SHELL_AND_TOOLS = ("bash", "cat", "chmod", "chown", "cp", "ls", "mkdir", "mv", "rm", "sha256sum", "sleep")


def base_entries(users: Sequence[tuple[str, int]]) -> Iterator[Entry]:
    """A merged-/usr file system with a shell, a few tools, /tmp and the given users beside root."""
    for name in ("bin", "lib", "lib64", "sbin"):
        yield Entry(path=name, link=f"usr/{name}", mode=0o777)
        yield Entry(path=f"usr/{name}")
    yield Entry(path="tmp", mode=0o1777)
    everyone = [("root", 0), *users]
    passwd = "".join(f"{name}:x:{uid}:{uid}:{name}:/:/bin/bash\n" for name, uid in everyone)
    group = "".join(f"{name}:x:{uid}:\n" for name, uid in everyone)
    yield Entry(path="etc/passwd", text=passwd, mode=0o644)
    yield Entry(path="etc/group", text=group, mode=0o644)
    yield Entry(path="usr/bin/sh", link="bash", mode=0o777)
    for name in SHELL_AND_TOOLS:
        yield from program(name)


def program(name: str) -> Iterator[Entry]:
    """A program of this host's PATH, placed in /usr/bin, and its libraries."""
    found = shutil.which(name)
    if not found:
        raise ToolchainError(
            f"`{name}` is not on PATH; the local images need it: apt-get install bash coreutils"
        )
    yield Entry(path=f"usr/bin/{name}", file=Path(found).resolve())
    yield from libraries(Path(found))


def libraries(binary: Path) -> Iterator[Entry]:
    """The shared libraries of a binary, where its loader will look for them; none when it is static."""
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    if "not a dynamic executable" in listed.stdout + listed.stderr or "statically linked" in listed.stdout:
        return
    if listed.returncode != 0 or "not found" in listed.stdout:
        raise ToolchainError(f"ldd can't resolve the libraries of {binary}:\n{listed.stdout}{listed.stderr}")
    for path in sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed.stdout, flags=re.MULTILINE))):
        yield Entry(path=merged_usr(path), file=Path(path).resolve())


def merged_usr(path: str) -> str:
    """Where a path of the host lies in an image in which /bin, /lib and /lib64 are links into /usr."""
    return re.sub(r"^(bin|lib|lib64|sbin)/", r"usr/\1/", path.lstrip("/"))
