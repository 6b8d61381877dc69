import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from urllib.parse import quote

import pytest
import torch
from typer.testing import CliRunner

import basinscope as bs
from basinscope.cli import app
from basinscope.report.catalogue import Catalogue
from basinscope.report.compare import run_page
from basinscope.training import Every, Measure, train
from hostile_names import NAMES
from live_pages import served, store, training

GENEROUS = 240  # seconds until an answer counts as lost


def scanned(folder):
    catalogue = Catalogue(folder)
    catalogue.scan()
    return catalogue, {row["name"]: row for row in catalogue.changed(0)[1]}


def get(port, path, method="GET", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()


def first_events(port, wanted="ready"):
    """What the page is told until it is ready."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)) as connection:
        connection.request("GET", "/events")
        found, name = [], ""
        with connection.getresponse() as answer:
            while not found or found[-1][0] != wanted:
                line = answer.readline().decode().strip()
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    found.append((name, json.loads(line.removeprefix("data: "))))
        return found


def test_jobs_trainings_and_reports_are_found(tmp_path, report):
    store(tmp_path / "store", ("a", "fails"))
    training(tmp_path / "nets" / "sgd")
    report.save(tmp_path / "measured")
    catalogue, rows = scanned(tmp_path)
    assert rows["name=a seed=1"]["values"]["llc"] == 6.01
    assert rows["name=fails seed=0"]["status"] == "failed"
    assert "no" in rows["name=fails seed=0"]["note"]
    assert rows["sgd"]["group"] == "nets"
    assert rows["sgd"]["values"]["epoch"] == 3
    assert rows["measured"]["values"]["llc"] == report["llc"].value
    assert catalogue.studies[0]["done"] == 2
    assert len(catalogue.detail(rows["name=a seed=0"]["id"]).rows) == 4
    assert catalogue.detail(rows["measured"]["id"]).report is not None
    assert len(catalogue.detail(rows["sgd"]["id"]).rows) == 4


def test_only_what_changes_is_told_again(tmp_path):
    training(tmp_path / "sgd", epochs=1)
    catalogue, rows = scanned(tmp_path)
    version = catalogue.version
    catalogue.scan()
    assert catalogue.changed(version) == (version, [], [])
    training(tmp_path / "sgd", epochs=2)
    catalogue.scan()
    (row,) = catalogue.changed(version)[1]
    assert row["id"] == rows["sgd"]["id"]
    assert row["values"]["epoch"] == 2
    version = catalogue.version
    shutil.rmtree(tmp_path / "sgd")
    catalogue.scan()
    assert catalogue.changed(version)[2] == [row["id"]]


def test_runs_cut_off_or_still_being_written_are_shown_as_such(tmp_path, report):
    training(tmp_path / "cut")
    file = tmp_path / "cut" / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "checkpoint.safetensors.part").write_bytes(b"")
    report.save(tmp_path / "half")
    text = (tmp_path / "half" / "report.json").read_text()
    (tmp_path / "half" / "report.json").write_text(text[: len(text) // 2])
    store(tmp_path / "store")
    record = next((tmp_path / "store" / "results").rglob("*.json"))
    record.write_text(record.read_text()[:100])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "store.json").write_text("{")
    catalogue, rows = scanned(tmp_path)
    assert rows["cut"]["status"] == rows["half"]["status"] == "damaged"
    assert rows["new"]["status"] == "starting"
    assert sum(row["status"] == "damaged" for row in rows.values()) == 3
    assert any("damaged" in study["title"] for study in catalogue.studies)
    for row in rows.values():
        catalogue.detail(row["id"])


def test_links_that_lead_out_are_not_followed(tmp_path):
    training(tmp_path / "secret" / "sgd")
    inside = tmp_path / "runs"
    (inside / "file").mkdir(parents=True)
    (inside / "folder").symlink_to(tmp_path / "secret", target_is_directory=True)
    (inside / "file" / "checkpoint.safetensors").symlink_to(tmp_path / "secret" / "sgd" / "checkpoint.safetensors")
    assert scanned(inside)[1] == {}


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/report/../../store.json", "/report/%2e%2e%2fstore.json",
        "/style.css/../../report.py", "/store.json", "/results", "/%2fetc/passwd", "/report/store.json",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(tmp_path, path):
    store(tmp_path)
    with served(tmp_path) as port:
        status, _, body = get(port, path)
        assert status in (404, 421)
        assert "schema" not in body
        assert "root:" not in body


def test_hostile_names_come_as_text(tmp_path, report):
    store(tmp_path / "store", NAMES)
    with served(tmp_path) as port:
        events = first_events(port)
        while sum(len(data) for name, data in events if name == "runs") < 2 * len(NAMES):
            events = first_events(port)
        rows = [row for name, data in events if name == "runs" for row in data]
        assert {name for row in rows if (name := row["values"]["name"])} == set(NAMES)
        query = "&".join(f"run={row['id']}" for row in rows[:6])
        status, headers, body = get(port, f"/compare?{query}")
        assert status == 200
        assert "<script" not in body
        assert "<img" not in body
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "<svg" in body  # curves
        for run_id in (*NAMES, "", "x" * 5000):
            assert get(port, f"/compare?run={quote(run_id)}")[0] == 200


def test_a_report_is_shown_from_its_folder(tmp_path, report):
    report.save(tmp_path / "measured")
    with served(tmp_path) as port:
        rows = [row for name, data in first_events(port) if name == "runs" for row in data]
        while not rows:
            rows = [row for name, data in first_events(port) if name == "runs" for row in data]
        status, headers, body = get(port, f"/report/{rows[0]['id']}")
        assert status == 200
        assert body == report.to_html()
        assert "script-src" not in headers["content-security-policy"]
        assert get(port, "/report/nothing")[0] == 404


def test_a_training_that_was_measured_has_its_curves(tmp_path):
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    train(
        torch.nn.Linear(2, 1), (x, x.sum(1, keepdim=True)), lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
        loss="mse", epochs=2, batch_size=10, folder=tmp_path / "sgd", progress=False,
        measures=[Measure(bs.trace, Every(epochs=1, start=True))],
    )  # fmt: skip
    catalogue, rows = scanned(tmp_path)
    page = run_page(catalogue, rows["sgd"]["id"])
    assert "Hessian trace over training" in page
    assert "Training loss" in page
    assert run_page(catalogue, "nothing") == ""
    with served(tmp_path) as port:
        assert get(port, "/run/nothing")[0] == 404


def test_only_this_machine_gets_in_and_only_to_look(tmp_path):
    with served(tmp_path) as port:
        assert get(port, "/")[0] == 200
        assert get(port, "/", Host="evil.example")[0] == 421
        assert get(port, "/", Host="localhost:1")[0] == 200
        assert get(port, "/", method="POST")[0] == 405
        headers = get(port, "/")[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_a_token_is_needed_where_there_is_one(tmp_path):
    token = "a-token-of-some-length/+="
    with served(tmp_path, token=token) as port:
        stolen = "/?token=a-token-of-some-length%2F%2B%3D"  # addresses are kept by logs and histories: no token in them
        for path in ("/", "/events", "/style.css", "/compare?run=x", stolen, "/enter"):
            assert get(port, path)[0] == 401
        assert get(port, "/", Authorization="Bearer wrong")[0] == 401
        assert get(port, "/", Cookie="basinscope-session=wrong")[0] == 401
        assert get(port, "/", Cookie=f"basinscope-session={token}")[0] == 401
        assert get(port, "/", Authorization=f"Bearer {token}")[0] == 200
        status, headers, _ = get(port, "/enter", Authorization=f"Bearer {token}")
        assert status == 204
        assert token not in headers["set-cookie"]
        assert "HttpOnly" in headers["set-cookie"]
        assert "samesite=strict" in headers["set-cookie"].lower()
        assert get(port, "/", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["nowhere"], "there is no folder of runs"), ([".", "--token", "short"], "at least 16 characters, got 5")],
)
def test_mistakes_are_told(tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_port_that_is_taken_is_told(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", str(other.getsockname()[1])])
    assert result.exit_code == 2
    assert "is it taken" in result.stderr


@pytest.mark.parametrize(("host", "token"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_the_command_serves_until_it_is_stopped(tmp_path, host, token):
    command = [sys.executable, "-c", "from basinscope.cli import main; main()", "serve", str(tmp_path), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, "--host", host], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = process.stdout.readline()
        assert ("/#" in line) == token
        port = int(line.partition(f"{host}:")[2].partition("/")[0])
        until = time.monotonic() + GENEROUS
        while time.monotonic() < until:
            try:
                status = get(port, "/")[0]
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        assert status == (401 if token else 200)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=GENEROUS)
    assert "Traceback" not in errors


def test_estimates_of_an_empty_folder_are_nothing(tmp_path):
    assert scanned(tmp_path)[1] == {}
    with pytest.raises(bs.InputError, match="no folder of runs"):
        Catalogue(tmp_path / "nowhere")
