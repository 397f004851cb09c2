"""Network: which settings stand between this machine and a package index; never an address, never a token."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.facts.network import NetworkFacts, Setting, probe_network
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

PIP_CONF = (
    "[global]\n"
    "index-url = https://ada:s3cr3t@pypi.corp.example/simple\n"
    "  extra_index_url=https://other.corp.example/simple\n"
    "trusted-host : pypi.corp.example\n"
    "# no-index = true\n"
    "timeout = 60\n"
)
UV_TOML = (
    'index-url = "https://pypi.corp.example/simple"\n'
    "offline = true\n"
    "[[index]]\n"
    'name = "corp"\n'
    'url = "https://t0ken@pypi.corp.example/simple"\n'
)


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def machine_of(root: Path, *, cwd: str = "/home/ada/project", **environ: str) -> LiveMachine:
    host = replace(LiveMachine().host, home="/home/ada", cwd=cwd)
    return LiveMachine(root=str(root), environ=environ, host=host)


def test_settings_are_told_by_name_and_place_and_no_address_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "/etc/pip.conf", PIP_CONF)
    put(tmp_path, "/home/ada/.config/uv/uv.toml", UV_TOML)
    recording = RecordingMachine(machine_of(tmp_path))
    facts = probe_network(recording)
    assert facts.package_settings == (
        Setting("index-url", "/etc/pip.conf"),
        Setting("extra-index-url", "/etc/pip.conf"),
        Setting("trusted-host", "/etc/pip.conf"),
        Setting("index-url", "/home/ada/.config/uv/uv.toml"),
        Setting("offline", "/home/ada/.config/uv/uv.toml"),
        Setting("index", "/home/ada/.config/uv/uv.toml"),
    )
    for text in (repr(facts), repr(recording.evidence)):
        for secret in ("corp.example", "s3cr3t", "t0ken"):
            assert secret not in text


def test_other_sources_and_offline_switches_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path, "/etc/pip.conf", "[global]\ncert = /etc/ca.pem\nfind-links = /wheels\n")
    facts = probe_network(machine_of(tmp_path, PIP_NO_INDEX="1", UV_INDEX="corp=https://x.example"))
    assert facts.other_sources == (Setting("UV_INDEX", "environment"), Setting("find-links", "/etc/pip.conf"))
    assert facts.offline == (Setting("PIP_NO_INDEX", "environment"),)
    assert Setting("cert", "/etc/pip.conf") in facts.package_settings


@pytest.mark.parametrize(
    "variable",
    ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"],
)
def test_an_index_in_the_environment_is_another_source_and_its_address_stays_out(tmp_path: Path, variable: str) -> None:
    facts = probe_network(machine_of(tmp_path, **{variable: "https://ada:s3cr3t@pypi.corp.example/simple"}))
    assert facts.other_sources == (Setting(variable, "environment"),)
    assert "corp.example" not in repr(facts)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, "/etc/xdg/pip/pip.conf"),
        ({}, "/home/ada/.pip/pip.conf"),
        ({"XDG_CONFIG_HOME": "/cfg"}, "/cfg/pip/pip.conf"),
        ({"VIRTUAL_ENV": "/venv"}, "/venv/pip.conf"),
        ({"PIP_CONFIG_FILE": "/etc/corp/pip.ini"}, "/etc/corp/pip.ini"),
    ],
)
def test_every_file_pip_reads_is_looked_at(tmp_path: Path, environ: dict[str, str], path: str) -> None:
    put(tmp_path, path, PIP_CONF)
    facts = probe_network(machine_of(tmp_path, **environ))
    assert facts.other_sources == (Setting("index-url", path), Setting("extra-index-url", path))


def test_a_pipe_in_place_of_a_file_is_left_to_its_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert probe_network(machine_of(tmp_path, PIP_CONFIG_FILE="/pipe")).package_settings == ()


def test_a_project_above_the_working_folder_counts_for_uv(tmp_path: Path) -> None:
    put(tmp_path, "/home/ada/pyproject.toml", '[tool.uv]\n[[tool.uv.index]]\nurl = "https://x.example"\n')
    facts = probe_network(machine_of(tmp_path, cwd="/home/ada/project/deep"))
    assert facts.other_sources == (Setting("tool.uv.index", "/home/ada/pyproject.toml"),)


def test_proxies_and_certificates_are_told_by_name(tmp_path: Path) -> None:
    facts = probe_network(
        machine_of(tmp_path, https_proxy="http://u:p@proxy:3128", NO_PROXY="localhost", HTTP_PROXY="", PIP_CERT="/ca")
    )
    assert facts.proxies == ("https_proxy", "NO_PROXY")
    assert facts.certificates == ("PIP_CERT",)
    assert "3128" not in repr(facts)


@pytest.mark.parametrize("value", ["cu130", "auto", "cpu", "rocm6.3"])
def test_the_torch_backend_of_uv_is_a_value_worth_knowing(tmp_path: Path, value: str) -> None:
    facts = probe_network(machine_of(tmp_path, UV_TORCH_BACKEND=value))
    assert facts.uv_torch_backend == Known(value, seen_in="UV_TORCH_BACKEND")


def test_a_torch_backend_that_is_no_name_is_not_taken(tmp_path: Path) -> None:
    facts = probe_network(machine_of(tmp_path, UV_TORCH_BACKEND="https://t0ken@x.example"))
    assert isinstance(facts.uv_torch_backend, Unknown)
    assert "t0ken" not in repr(facts)


@pytest.mark.parametrize("text", ["", "\0" * 500, "index-url", "my-index-url = x\n", "[index-url]\n"])
def test_an_absurd_or_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/etc/pip.conf", text)
    assert probe_network(machine_of(tmp_path)).package_settings == ()


def test_a_bare_machine_has_no_settings(tmp_path: Path) -> None:
    facts = probe_network(machine_of(tmp_path, PIP_CONFIG_FILE="/dev/null", cwd="/"))
    assert facts == NetworkFacts((), (), (), Unknown("UV_TORCH_BACKEND is not set"))


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    put(tmp_path, "/etc/pip.conf", PIP_CONF)
    recording = RecordingMachine(machine_of(tmp_path, HTTPS_PROXY="x"))
    facts = probe_network(recording)
    assert probe_network(RecordedMachine(recording.evidence)) == facts
    assert decode(NetworkFacts, json.loads(json.dumps(encode(facts))), "network") == facts
