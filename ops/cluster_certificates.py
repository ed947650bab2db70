"""The certificates of a cluster of our own, by openssl: its authority, the servers' and the programs'."""

import shutil
import subprocess
from pathlib import Path

from ops.errors import UserError

# Who each program is to the API server: the user name, and the group that its rights come from. kwok plays
# every node at once, so it is no single node's user.
USERS = {
    "admin": ("admin", "system:masters"),
    "kwok": ("kwok", "system:masters"),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "etcd-client": ("kube-apiserver", ""),
}
_SERVERS = ("kube-apiserver", "etcd")
_NAMES = "IP:127.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = "3650"


class Certificates:
    """PEM files in one folder, which is readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = self.certificate("authority")
        self.service_account_key = folder / "service-account.key"
        self.service_account_public = folder / "service-account.pub"

    def certificate(self, name: str) -> Path:
        """The certificate of a server or user."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The key of a server or user."""
        return self.folder / f"{name}.key"

    def make(self) -> None:
        """Make all of them, once; raises UserError where openssl is missing or refuses."""
        if self.service_account_public.exists():
            return
        if shutil.which("openssl") is None:
            raise UserError("A cluster of our own needs openssl, not found on PATH: apt-get install openssl")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._openssl(
            "req", "-x509", *_NEW_KEY, "-days", _DAYS, "-subj", "/CN=cluster",
            "-keyout", str(self.key("authority")), "-out", str(self.authority),
        )  # fmt: skip
        for name in _SERVERS:
            self._signed(name, f"/CN={name}", f"subjectAltName={_NAMES}\nextendedKeyUsage=serverAuth\n")
        for name, (user, group) in USERS.items():
            subject = (f"/O={group}" if group else "") + f"/CN={user}"
            self._signed(name, subject, "extendedKeyUsage=clientAuth\n")
        key = str(self.service_account_key)
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", key)
        self._openssl("pkey", "-in", key, "-pubout", "-out", str(self.service_account_public))

    def _signed(self, name: str, subject: str, extensions: str) -> None:
        request, extension_file = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extension_file.write_text(extensions)
        self._openssl(
            "req", *_NEW_KEY, "-subj", subject, "-keyout", str(self.key(name)), "-out", str(request)
        )
        self._openssl(
            "x509", "-req", "-in", str(request), "-days", _DAYS, "-extfile", str(extension_file),
            "-CA", str(self.authority), "-CAkey", str(self.key("authority")), "-CAcreateserial",
            "-out", str(self.certificate(name)),
        )  # fmt: skip
        request.unlink()
        extension_file.unlink()

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"openssl {arguments[0]} failed:\n{done.stderr.strip()}")
