"""Requests to a Kubernetes API server, with a client certificate."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """What the API server answered instead of what was asked for."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class KubeApi:
    """One API server on the loopback. Paths are the API's own, such as `/api/v1/nodes`."""

    def __init__(self, port: int, *, authority: Path, certificate: Path, key: Path) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(certificate, key)

    def get(self, path: str) -> Json:
        """Read an object or a list; raises ApiError, also for what is not there (code 404)."""
        return self.request("GET", path)

    def items(self, path: str) -> list[Json]:
        """The objects of a list."""
        found: list[Json] = self.get(path)["items"]
        return found

    def create(self, path: str, body: Json) -> Json:
        """Post an object, or an eviction and the like."""
        return self.request("POST", path, body)

    def merge(self, path: str, patch: Json) -> Json:
        """Change fields of an object by a merge patch."""
        return self.request("PATCH", path, patch, _MERGE)

    def delete(self, path: str) -> Json:
        """Delete an object."""
        return self.request("DELETE", path)

    def ready(self) -> bool:
        """Whether every part of the API server says that it is ready."""
        try:
            return self._send("GET", "/readyz", None, "application/json")[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def request(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> Json:
        """Send one request; raises ApiError with the server's message, OSError where it does not answer."""
        code, text = self._send(method, path, body, content_type)
        answer: Json = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
        if code >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(code, str(answer.get("message", "")))
        return answer

    def _send(self, method: str, path: str, body: Json | None, content_type: str) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._tls)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
