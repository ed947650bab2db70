"""Runs of the scripts in `components/data`, on folders in the place of upload and volume."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from components import config_volume
from components.scripts import script
from images.host_files import SHELL_AND_TOOLS

PATIENCE_S = 30
DATA = Path(config_volume.__file__).parent / "data"


class Publisher:
    """What is uploaded, the volume, and runs of the script on both."""

    def __init__(self, folder: Path) -> None:
        self.uploaded = folder / "publish"
        self.volume = folder / "volume"
        self.volume.mkdir()
        # What the images have, and nothing else.
        self.tools = folder / "bin"
        self.tools.mkdir()
        self.prefix: tuple[str, ...] = ()
        for tool in SHELL_AND_TOOLS:
            (self.tools / tool).symlink_to(shutil.which(tool) or tool)

    def upload(
        self,
        files: Mapping[str, str],
        then: str = "",
        modes: Mapping[str, str] | None = None,
        then_files: Mapping[str, str] | None = None,
        owner: str = "-",
    ) -> None:
        for file in (*self.uploaded.rglob("*"),):
            if file.is_file():
                file.unlink()
        (self.uploaded / "files").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.uploaded / "files" / name).write_text(text)
        lines = [f"{(modes or {}).get(name, '0644')} {owner} {name}\n" for name in files]
        (self.uploaded / "list").write_text("".join(lines) or "\n")
        (self.uploaded / "publish.sh").write_text(script("publish.sh"))
        if then:
            (self.uploaded / "then.sh").write_text(then)
        for name, text in (then_files or {}).items():
            (self.uploaded / "then").mkdir(exist_ok=True)
            (self.uploaded / "then" / name).write_text(text)

    def start(self) -> "subprocess.Popen[str]":
        """A run of its own."""
        command = [*self.prefix, str(self.tools / "bash"), str(self.uploaded / "publish.sh")]
        return subprocess.Popen(
            [*command, str(self.uploaded), str(self.volume)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": str(self.tools)},
        )

    def confine(self) -> None:
        """Let further runs have what the container has: root without its powers, but for CAP_CHOWN."""
        kept = "-all,+chown"
        self.prefix = (shutil.which("setpriv") or "setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}")

    def run(self) -> tuple[int | None, str]:
        """Exit code and output of a run; None where it was done, and would linger to be seen."""
        process = self.start()
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and not self.done():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        code = process.poll()
        process.kill()
        return code, process.communicate()[0]

    def done(self) -> bool:
        return (self.uploaded / "done").exists()

    def held(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.volume.iterdir() if file.name[0] != "."}


class Accepted:
    """Runs of `accepted.sh` with what the image has, and a name service that is told what to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "acceptance"
        self.hosts = self.folder / "hosts"
        self.tools = self.folder / "bin"
        self.hosts.mkdir(parents=True)
        self.tools.mkdir()
        for tool in ("bash", "sleep"):
            (self.tools / tool).symlink_to(shutil.which(tool) or tool)
        getent = self.tools / "getent"
        asked = '[[ $1 == ahostsv4 && -e $hosts/$2 ]] || exit 2\nprintf "%s\\n" "$(<"$hosts/$2")"'
        getent.write_text(f'#!{self.tools}/bash\nhosts="{self.hosts}"\n{asked}\n')
        getent.chmod(0o755)

    def pods(self, host: str, *addresses: str) -> None:
        """What is behind the name of a Service from now on."""
        # The C library has a line for each kind of socket.
        lines = [f"{one} {kind} {host}" for one in addresses for kind in ("STREAM", "DGRAM", "RAW")]
        (self.hosts / host).write_text("\n".join(lines))

    def start(self, settings: Sequence[str]) -> "subprocess.Popen[str]":
        """A run of its own."""
        (self.folder / "settings").write_text("".join(f"{line}\n" for line in settings))
        return subprocess.Popen(
            [str(self.tools / "bash"), str(DATA / "accepted.sh"), str(self.folder / "settings")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": str(self.tools)},
        )

    def run(self, settings: Sequence[str]) -> tuple[int, str]:
        """Exit code, and all that it said."""
        process = self.start(settings)
        said = process.communicate(timeout=90)[0]
        return process.returncode, said


def still_asks(process: "subprocess.Popen[str]") -> bool:
    """Whether a run goes on after it must have asked more than once."""
    try:
        process.wait(1.5)
    except subprocess.TimeoutExpired:
        return True
    return False
