"""``geokv dashboard`` as a command: what it refuses, says and leaves."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
from cli import Geokv
from dashboards import start_dashboard


def test_what_cannot_be_served_is_said(geokv: Geokv, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "manifest.json").write_text("{}")
        for args, code, said in (
            ([tmp_path / "nothing"], 2, "no such folder"),
            ([tmp_path / "run"], 2, "is a run itself"),
            ([tmp_path, "--port", port], 4, f"cannot listen on 127.0.0.1:{port}"),
            ([tmp_path, "--host", "0.0.0.0"], 2, "other machines could read every run"),
            ([tmp_path, "--host", "banana"], 2, "is no IPv4 address"),
            ([tmp_path, "--host", "192.0.2.1", "--expose"], 4, "cannot listen on 192.0.2.1"),
        ):
            done = geokv("dashboard", *args)
            assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_an_exposed_one_warns_and_answers_by_address(geokv: Geokv, tmp_path: Path) -> None:
    one = start_dashboard(geokv, tmp_path / "runs", "0", "--host", "0.0.0.0", "--expose")
    port = httpx.URL(one.base).port
    with httpx.Client(base_url=one.base, trust_env=False, timeout=20) as http:
        assert http.get("/api/runs").json()["runs"] == []
        assert http.get("/api/runs", headers={"host": f"127.0.0.2:{port}"}).status_code == 200
        assert http.get("/api/runs", headers={"host": f"evil.example:{port}"}).status_code == 421
        assert http.post("/api/start", json={"scenario": "smoke"}).status_code == 401
    said = one.end()
    assert "warning" in said and "unencrypted" in said and said.endswith("ended\n")
    assert list((tmp_path / "runs").iterdir()) == []


def test_tokens_differ_from_start_to_start(geokv: Geokv, tmp_path: Path) -> None:
    urls = []
    for _ in range(2):
        one = start_dashboard(geokv, tmp_path / "runs")
        urls.append(one.url)
        one.end()
    tokens = {url.partition("#token=")[2] for url in urls}
    assert len(tokens) == 2 and min(map(len, tokens)) >= 32
