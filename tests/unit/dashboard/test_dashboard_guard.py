"""Who may ask what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import TOKEN, GrowingRun, Served, identity
from starlette.responses import PlainTextResponse

from geokv.dashboard.guard import BODY_LIMIT_BYTES, TOKEN_HEADER, Guard


async def status(server: Served, path: str = "/api/runs", **headers: str) -> int:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await server.http.get(path, headers=said)).status_code


async def test_only_our_own_host_name_is_answered(server: Served) -> None:
    assert await status(server) == 200
    assert await status(server, host=f"localhost:{server.port}") == 200
    for host in (
        f"evil.example:{server.port}",
        "127.0.0.1",
        f"127.0.0.1:{server.port + 1}",
        f"127.0.0.1.evil.example:{server.port}",
        f"192.168.0.1:{server.port}",
        f"user@127.0.0.1:{server.port}",
        "",
    ):
        assert await status(server, host=host) == 421, host
        assert await status(server, "/", host=host) == 421, host


async def test_two_host_headers_are_refused(server: Served) -> None:
    ours = f"127.0.0.1:{server.port}".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /api/runs HTTP/1.1\r\nHost: %b\r\nHost: %b\r\n\r\n" % (ours, ours))
    line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    await writer.wait_closed()
    assert line.split()[1] in (b"400", b"421")


async def test_other_origins_are_refused_even_with_the_token(server: Served) -> None:
    ours = f"http://127.0.0.1:{server.port}"
    for origin, expected in (
        (ours, 200),
        (f"http://localhost:{server.port}", 200),
        (f"https://127.0.0.1:{server.port}", 403),
        ("http://evil.example", 403),
        (f"http://127.0.0.1:{server.port + 1}", 403),
        (f"{ours}.evil.example", 403),
        ("null", 403),
        ("", 403),
    ):
        assert await status(server, origin=origin) == expected, origin
        posted = await server.http.post(
            "/api/check",
            json={"scenario": "smoke"},
            headers={"origin": origin, TOKEN_HEADER: TOKEN},
        )
        assert posted.status_code == expected, origin


async def test_what_another_page_loads_is_refused_and_a_link_to_here_is_followed(
    server: Served,
) -> None:
    assert await status(server, sec_fetch_site="cross-site", sec_fetch_mode="no-cors") == 403
    assert await status(server, sec_fetch_site="same-site", sec_fetch_mode="cors") == 403
    assert await status(server, sec_fetch_site="same-origin", sec_fetch_mode="cors") == 200
    assert await status(server, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == 200
    posted = await server.http.post(
        "/api/check",
        json={"scenario": "smoke"},
        headers={
            TOKEN_HEADER: TOKEN,
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
        },
    )
    assert posted.status_code == 403


CHANGES = ("/api/check", "/api/start", "/api/runs/x/command", "/api/runs/x/end")


@pytest.mark.parametrize("path", CHANGES)
async def test_every_change_needs_the_token(server: Served, path: str) -> None:
    for token in ("", "wrong", TOKEN[:-1], TOKEN + "x", "ü"):
        answer = await server.http.post(path, json={}, headers=[(b"x-geokv-token", token.encode())])
        assert answer.status_code == 401, token
        assert "token" in answer.json()["error"]
    assert (await server.http.post(path, json={})).status_code == 401
    assert (await server.post(path, {})).status_code != 401


async def test_every_route_that_changes_something_is_among_those(server: Served) -> None:
    from geokv.dashboard.app import build_app

    changing = {
        route.path.replace("{identity}", "x")
        for route in build_app(server.dashboard).routes
        if getattr(route, "methods", None) and not {"GET", "HEAD"} & set(route.methods)  # type: ignore[attr-defined]
    }
    assert changing == set(CHANGES)


async def test_bodies_have_a_type_a_length_and_a_limit(server: Served) -> None:
    async def post(content: Any, **headers: str) -> int:
        said = {
            "content-type": "application/json",
            TOKEN_HEADER: TOKEN,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return (await server.http.post("/api/check", content=content, headers=said)).status_code

    async def pieces() -> Any:
        yield b"{}"

    assert await post(b"scenario=smoke", content_type="application/x-www-form-urlencoded") == 415
    assert await post(b"{}", content_type="text/plain") == 415
    assert await post(pieces()) == 411
    assert await post(b" " * (BODY_LIMIT_BYTES + 1)) == 413
    assert await post(b"{}" + b" " * (BODY_LIMIT_BYTES - 2)) == 422
    assert await post(b"{") == 422


async def test_pages_may_load_only_what_is_ours(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    (run.folder / "report.html").write_text("<script>alert(1)</script>")
    page = await server.http.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    report = await server.http.get(f"/runs/{identity(root, run.folder)}/report.html")
    assert report.headers["content-type"] == "text/html; charset=utf-8"
    policy = report.headers["content-security-policy"]
    assert policy.startswith("sandbox") and "allow-scripts" not in policy
    assert "allow-same-origin" not in policy and "default-src 'none'" in policy
    for one in (page, report, await server.http.get("/static/main.js")):
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in one.headers
        assert "server" not in one.headers
    run.end()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.168.7.9:80", 200),
        ("192.168.7.9", 200),
        ("[::1]:80", 200),
        ("named:80", 200),
        ("evil.example:80", 421),
        ("192.168.7.9:81", 421),
        ("192.168.7.9.evil.example:80", 421),
    ],
)
async def test_a_server_on_all_interfaces_answers_to_addresses_and_its_own_name(
    host: str, expected: int
) -> None:
    app = Guard(PlainTextResponse("in"), TOKEN, {"named"}, 80, any_address=True)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://named") as http:
        assert (await http.get("/", headers={"host": host})).status_code == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/api/nothing", None, 404),
        ("GET", "/static/nothing.js", None, 404),
        ("GET", "/api/check", None, 405),
        ("POST", "/api/runs", b"{}", 405),
        ("DELETE", "/api/runs", b"{}", 405),
        ("POST", "/api/check", b"{", 422),
        ("POST", "/api/check", b"\xff\xfe", 422),
        ("POST", "/api/check", b"[]", 422),
        ("GET", "/api/runs/nothing", None, 404),
    ],
)
async def test_every_error_is_of_one_shape(
    server: Served, method: str, path: str, body: bytes | None, expected: int
) -> None:
    headers = {TOKEN_HEADER: TOKEN, "content-type": "application/json"}
    answer = await server.http.request(method, path, content=body, headers=headers)
    assert answer.status_code == expected, answer.text
    assert answer.json().keys() == {"error", "hint"} and answer.json()["error"]
    if expected == 405:
        assert answer.headers["allow"]


async def test_what_can_be_read_has_a_head(server: Served, root: Path) -> None:
    run = GrowingRun(root)
    name = identity(root, run.folder)
    for path in (
        "/",
        "/favicon.ico",
        "/api/runs",
        f"/api/runs/{name}",
        f"/runs/{name}/manifest.json",
    ):
        head, whole = await server.http.head(path), await server.http.get(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-length"] == whole.headers["content-length"], path
