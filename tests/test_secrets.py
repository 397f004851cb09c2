"""What is a secret is masked in every text; what only looks like one stays."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.secrets import has_login, masked, without_credentials, without_login

PASSWORD = "Tr0ub4dor"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{PASSWORD}@pypi.example/simple",
        f"https://{PASSWORD}@pypi.example/simple",
        f"git+https://oauth2:{PASSWORD}@git.example/a.git@v1.2#egg=a",
        f"HTTPS://User:{PASSWORD}@Host/simple",
        f"https://user:{PASSWORD}%40x@host/simple",
        f"https://user:x@{PASSWORD}@host/simple",
        f"https://user:{PASSWORD}/with/slash@host/simple",
        f"redis://:{PASSWORD}@cache:6379/0",
        f"https%3A%2F%2Fuser%3A{PASSWORD}%40host%2Fsimple",
        f"https://user:{PASSWORD}",
        f"https://user:{PASSWORD}...",
        f"ssh://bob:{PASSWORD}@host/a",
        f"//bob:{PASSWORD}@pypi.example.com/simple",
        f"proxy = bob:{PASSWORD}@proxy.example.com:8080",
        f"--password {PASSWORD} --yes",
        f"--auth-token={PASSWORD}",
        f"HF_TOKEN={PASSWORD}",
        f"export WANDB_API_KEY='{PASSWORD}'",
        f"TWINE_PASSWORD = {PASSWORD}",
        f"MY_KEY={PASSWORD}",
        f"DB_PASS={PASSWORD}",
        f'{{"password": "with a space {PASSWORD}"}}',
        f"Authorization: Bearer {PASSWORD}",
        f"Authorization: token {PASSWORD}",
        f"X-Api-Key: {PASSWORD}",
        f"curl -u bob:{PASSWORD} https://host/",
        f"machine host login bob password {PASSWORD}",
        f"/w.whl?X-Amz-Signature={PASSWORD}&a=1",
        f"/w.whl?token={PASSWORD}&a=1",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PASSWORD}\n-----END OPENSSH PRIVATE KEY-----",
        f"hf_{PASSWORD}abcdefgh",
        f"ghp_{PASSWORD}abcdefgh",
        f"glpat-{PASSWORD}-abc",
        f"pypi-AgEIcHlwaS5vcmc{PASSWORD}",
    ],
)
def test_a_secret_does_not_stay(text: str) -> None:
    assert PASSWORD not in masked(text)
    assert "<redacted>" in masked(text)
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://pypi.org/simple",
        "https://host:8443/simple/a@1.0",
        "http://[::1]:8080/simple",
        "ssh://git@github.com/pytorch/pytorch.git",
        "tokenizers==0.22.1 secretstorage==3.3.3 hf_transfer==0.1.9",
        "max_tokens: 4096, tokens=128",
        '{"tile_tokens":256},"pass":3}',
        "HF_TOKEN=$HF_TOKEN",
        "HF_TOKEN=${HF_TOKEN:-}",
        "docker run --user 1000:1000",
        "the password is asked for",
        "known signatures: firstlight explain --list",
        "GPU-added GPU-0 GPU-less MIG-enabled gpu-10 gpu-0",
        "docker.io/library/python:3.12@sha256:0123456789abcdef",
        "password: unknown",
        "/etc/passwd: not an ELF file",
        "credentials: Permission denied",
        "torch 2.9.0+cu128, /usr/local/cuda-13.0",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "GPU-8f1c2d3e",
        "GPU-8f1c2d3e-1a2b",
        "GPU-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab",
        "MIG-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab",
        "MIG-GPU-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab/1/0",
        "gpu-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab",
    ],
)
def test_ids_of_gpus_are_masked_whole_and_cut_and_stay_for_who_asks_for_names(text: str) -> None:
    assert "5ebe9f4c" not in masked(text)
    assert "8f1c2d3e" not in masked(text)
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    "before", ["wandb: api key ", "wandb: Paste an API key from your profile: ", "WANDB API-KEY is "]
)
def test_a_key_of_hex_digits_alone_is_known_by_what_stands_before_it(before: str) -> None:
    key = "0123456789abcdef" * 2 + "01234567"
    assert masked(f"{before}{key}") == f"{before}<redacted>"
    assert masked(f"commit {key}") == f"commit {key}"


def test_a_document_stays_a_document() -> None:
    document = {
        "url": f"https://user:{PASSWORD}@host/simple",
        "text": f'"password": "{PASSWORD}"\nnext line',
        "tokens": [1, 2],
        "token_count": 5,
        "line": f"HF_TOKEN={PASSWORD}\nexport A=1",
    }
    read = json.loads(masked(json.dumps(document)))
    assert PASSWORD not in json.dumps(read)
    assert (read["tokens"], read["token_count"]) == ([1, 2], 5)
    assert read["line"].endswith("\nexport A=1")


def test_an_address_without_its_login_is_what_a_command_may_name() -> None:
    assert without_login(f"https://user:{PASSWORD}@host:8443/simple") == "https://host:8443/simple"
    assert has_login(f"https://{PASSWORD}@host/simple")
    assert not has_login("https://host:8443/simple")


@given(st.text(alphabet="ab:/@=-_ \"'\\<>{}$%&?tokenpasswordhttps123\n", max_size=120))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "piece", ["--token", "a-", "https://a:", "curl -u ", "token=", "bearer ", "login a password ", "%3A%2F%2F"]
)
def test_no_text_takes_long(piece: str) -> None:
    begun = time.process_time()
    masked(piece * (200_000 // len(piece)))
    assert time.process_time() - begun < 10
