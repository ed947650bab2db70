"""Requests to a Kubernetes API server."""

import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

_MERGE = "application/merge-patch+json"
_PATIENCE_S = 30


class ApiError(Exception):
    """What the API server answered instead of what was asked for."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class KubeApi:
    """One API server, by its URL. Paths are the API's own, such as `/api/v1/nodes`.

    Who asks is in `tls`, or a `token`; `host` is what the server's certificate says, if not its address.
    """

    def __init__(
        self, server: str, tls: ssl.SSLContext, *, token: str | None = None, host: str | None = None
    ) -> None:
        parts = urlsplit(server)
        self._address = (parts.hostname or "", parts.port or 443)
        self._below = parts.path.rstrip("/")
        self._tls = tls
        self._host = host
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

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
        connection = http.client.HTTPSConnection(*self._address, timeout=_PATIENCE_S, context=self._tls)
        if self._host:
            plain = socket.create_connection(self._address, _PATIENCE_S)
            connection.sock = self._tls.wrap_socket(plain, server_hostname=self._host)
        headers = {"Content-Type": content_type, "Accept": "application/json", **self._headers}
        try:
            connection.request(
                method, self._below + path, json.dumps(body) if body is not None else None, headers
            )
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
