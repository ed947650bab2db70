"""Certificates, keys and tokens that a run makes for itself, in place of an operator's."""

import base64
import json
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

ISSUER = "https://issuer.example.com"
AUDIENCE = "tf-serving"
API_KEYS = {"key_a": 'a key with "quotes" and \\', "key_b": "0123456789abcdef"}


def _openssl(*arguments: str, cwd: str, data: bytes | None = None) -> bytes:
    done = subprocess.run(["openssl", *arguments], cwd=cwd, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def certificate(common_name: str = "localhost") -> tuple[str, str]:
    """A certificate for this machine, and its key; another name is another certificate."""
    return _certificate(common_name)


@cache
def _certificate(common_name: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", f"/CN={common_name}"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            cwd=folder,
        )
        return Path(folder, "cert.pem").read_text(), Path(folder, "key.pem").read_text()


def secrets(common_name: str = "localhost") -> dict[str, str]:
    """A value for every key of the configuration that a test's settings name."""
    cert, key = certificate(common_name)
    return {"tls_certificate": cert, "tls_private_key": key, **API_KEYS}


@cache
def _signing_key() -> str:
    with tempfile.TemporaryDirectory() as folder:
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "k", cwd=folder)
        return Path(folder, "k").read_text()


def jwk() -> dict[str, str]:
    """The public key of `token`."""
    shown = _openssl("rsa", "-noout", "-modulus", cwd="/", data=_signing_key().encode()).decode()
    modulus = bytes.fromhex(shown.strip().removeprefix("Modulus="))
    return {"kty": "RSA", "alg": "RS256", "kid": "one", "n": _base64(modulus), "e": "AQAB"}


def token(**claims: Any) -> str:
    """A token of ISSUER for AUDIENCE, good for an hour; `claims` are more, or others."""
    now = int(time.time())
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "team-a", "exp": now + 3600, **claims}
    content = {name: value for name, value in content.items() if value is not None}
    parts = [{"alg": "RS256", "kid": "one", "typ": "JWT"}, content]
    signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "k").write_text(_signing_key())
        signature = _openssl("dgst", "-sha256", "-sign", "k", cwd=folder, data=signed.encode())
    return f"{signed}.{_base64(signature)}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
