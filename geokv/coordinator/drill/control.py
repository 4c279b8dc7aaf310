"""A site's control socket while anything may happen to the site."""

from __future__ import annotations

from typing import Any

import httpx

from geokv.errors import RunError

CONTROL_DEADLINE_S = 1.0


class SiteControl:
    """Asks one life of one site; a dead or frozen one costs the deadline and raises RunError.

    Args:
        socket: path of the control socket.
    """

    def __init__(self, site: str, socket: str) -> None:
        self.site = site
        transport = httpx.AsyncHTTPTransport(uds=socket)
        self._http = httpx.AsyncClient(
            transport=transport, base_url="http://control", timeout=None, trust_env=False
        )

    async def get(self, path: str, deadline_s: float = CONTROL_DEADLINE_S) -> dict[str, Any]:
        """One thing collected."""
        return await self._call("GET", path, None, deadline_s)

    async def post(
        self, path: str, deadline_s: float = CONTROL_DEADLINE_S, **body: Any
    ) -> dict[str, Any]:
        """One command."""
        return await self._call("POST", path, body, deadline_s)

    async def patient(self, path: str, deadline_s: float, **body: Any) -> dict[str, Any]:
        """One command that keeps a deadline of its own: it is told ``deadline_s``, and waited
        for a little longer."""
        told = {**body, "deadline_s": deadline_s}
        return await self._call("POST", path, told, deadline_s + CONTROL_DEADLINE_S)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None, deadline_s: float
    ) -> dict[str, Any]:
        try:
            response = await self._http.request(
                method, path, json=body, timeout=httpx.Timeout(deadline_s)
            )
        except httpx.TimeoutException:
            raise RunError(
                f"site {self.site} does not answer {path} within {deadline_s:g} s"
            ) from None
        except httpx.HTTPError as error:
            said = str(error) or type(error).__name__
            raise RunError(f"site {self.site} does not answer {path}: {said}") from None
        data: dict[str, Any] = response.json()
        if response.status_code != 200:
            said = data.get("error", data.get("detail", response.status_code))
            raise RunError(f"site {self.site}: {path}: {said}", data.get("hint", ""))
        return data
