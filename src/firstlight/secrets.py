"""What is a secret: logins in addresses, tokens, keys, passwords. One place decides; all that leaves asks it.

What leaves is what is printed, the journal, logs, documents, pages and emitted files. The same text always gives the
same result, and masking twice changes nothing more.
"""

from __future__ import annotations

import re

# What is tried only on texts that have a sign of it is compiled then: every start of firstlight imports this.
MASK = "<redacted>"
_ESCAPED = "&lt;redacted&gt;"  # the same in a page

# What stands before the @ of an address. A raw @ in a password counts to the last one; a raw / only after user:.
_LOGIN = (
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<login>[^\s/\"'<>\\]+(?=@)|[^\s/:@\"'<>\\]+:(?!\d{1,5}/)[^\s@\"'<>\\]{1,200}(?=@[\w.-]+))@"
)
# The same cut off before its @; a number after the colon is a port.
_CUT_LOGIN = (
    r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/:@\"'<>\[\\]+:(?!\d{1,5}(?![\w.~!*-])|port\b)[^\s/@\"'<>\\]+(?=[\s\"']|\.{3}|$)"
)
# The same without a scheme, as proxies are given: user:word@host.domain, host:port, //user:word@host; not pkg:name@1.2.
_BARE_LOGIN = (
    r"(?<![\w:/@.-])(//)?[\w.-]{1,60}:(?!//)[^\s/:@\"'<>\\]{3,200}@"
    r"(?=(?:[A-Za-z][\w-]*\.)+[A-Za-z]|[\w.-]+:\d|localhost\b)"
)
_BY_NAME_ALONE = ("ssh", "git+ssh", "sftp", "rsync", "svn+ssh", "scp")  # git@github.com is no secret
_ENCODED_LOGIN = r"(?i)(%3A%2F%2F)(?!%3Credacted)[^\s/&\"'<>]{1,200}?(%40)"
# GPU-8f1c2d3e-... whole or cut: CUDA takes as much of it as tells one from the others. Letters alone are a word.
GPU_ID = re.compile(
    r"\b(MIG-GPU|GPU|MIG)-(?=[0-9a-fA-F-]*\d)[0-9a-fA-F]{2,8}(?:-[0-9a-fA-F]{0,4}){0,3}(?:-[0-9a-fA-F]{0,12})?(?![\w-])"
)
# In small letters only whole: gpu-10 is our own name for one.
_GPU_ID_SMALL = re.compile(r"\b(mig-gpu|gpu|mig)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_TOKENS = re.compile(
    r"\b(?:hf_(?:[A-Za-z0-9]{14,}|(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,})|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}"
    r"|gl(?:pat|ptt|dt|rt|ft|soat|cbt)-[\w-]{8,}|sk-[\w-]{12,}|xox[abeprs]-[\w-]{8,}"
    r"|xapp-[\w-]{8,}|rpa_[A-Za-z0-9]{8,}|nvapi-[\w-]{8,}|pypi-(?=[\w-]*[A-Z0-9])[\w-]{16,}"
    r"|dckr_pat_[\w-]{8,}|npm_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[sr]k_(?:live|test)_\w{8,}|ya29\.[\w-]{8,}"
    r"|whsec_\w{8,}|wandb_v1_\w{8,}|r8_[A-Za-z0-9]{20,}|dop_v1_[0-9a-f]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"
)
# Without a sign of their own: not inside base64, which packed data in a page is.
_LETTERS = re.compile(r"(?<![A-Za-z0-9+/])(?:A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{20,}|dapi[0-9a-f]{32}|ATATT[\w-]{20,})")
_PEM = r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_KEPT_QUIET = (
    r"[\w-]{0,40}(?:token(?!iz)|secret(?!storage)|passw(?:or)?d|passphrase|credential|api[_-]?key|ac(?:cess|count)[_-]?key"
    r"|private[_-]?key|authorization|cookie)[\w-]{0,40}"
)
_VALUE = r"(?:(?:bearer|basic|token|digest|apikey)\s+)?(?:[^\s\"',;&\\]|\\[^nrt\s])"
_QUOTED = r"(?<=[^\\]\")(?:[^\"\\\n]|\\.)+(?=\")|(?<=[^\\]')[^'\n]+(?=')"
# password=x, "password": "x", X-Api-Key: x; not tokenizers==0.22.1, whose second = makes it a version.
_PAIR = re.compile(
    rf"(?i)(?<![\w/.-])({_KEPT_QUIET})(\\?[\"']?[ \t]{{0,8}}(?:=(?!=)|:(?!//|:))[ \t]{{0,8}}\\?[\"']?)"
    rf"({_QUOTED}|{_VALUE}{{3,}})"
)
_VARIABLE = re.compile(
    rf"(?<![\w-])(\w{{0,40}}_(?:KEY|PASS|PW|PWD|AUTH|PAT|TOKEN|SECRET|PASSWORD)|\w{{0,40}}_pass|pass|pwd|sig|[\w-]{{0,20}}[Ss]ignature)"
    rf"(=(?!=)\\?[\"']?)({_VALUE}{{1,}})"
)
_OPTION = (
    r"((?<![\w-])--[\w-]{0,40}(?:password|passwd|passphrase|token|api-?key|credentials?|client-secret|secret-key)(?:\s+|=)[\"']?)"
    r"([^\s\"'-][^\s\"']*)"
)
_CURL_LOGIN = r"(\b(?:curl|wget)\b[^\n]{0,400}?\s(?:-u|--user|--proxy-user)[ =]?[\"']?)([^\s\"':]+:[^\s\"']+)"
_NETRC = r"(\blogin\s+\S+\s+password\s+)(\S+)"
_HEX_KEY = r"(?i)(\bapi[ _-]?key\b[^\n]{0,80}?(?<![0-9a-f]))([0-9a-f]{40})(?![0-9a-f])"  # wandb's is nothing but hex
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{8,}")
_HARMLESS = (
    r"(?i)(?:true|false|none|null|set|unset|unknown|required|yes|no|not|is|it|permission|invalid|\*+|\$\{?\w+(?::?[-=?+][^}]*)?\}?|\$\(.*|\{\{.*"
    r"|<[\w -]+>?|(?:<|&lt;)redacted.*)"
)
_COUNT = r"[\d.,+-]+(?:[eE][+-]?\d+)?[A-Za-z/%]{0,3}"
_COUNTED = r"(?i)tokens|^pass$"  # max_tokens=4096, pass=3


def masked(text: str) -> str:
    """The text with <redacted> in place of every secret and of the ids that single out a GPU."""
    text = without_credentials(text)
    return _GPU_ID_SMALL.sub(rf"\g<1>-{MASK}", GPU_ID.sub(rf"\g<1>-{MASK}", text)) if "-" in text else text


def without_credentials(text: str) -> str:
    """The same with the ids of GPUs, for whoever asks for real names (--identify)."""
    if "://" in text:
        text = re.sub(_CUT_LOGIN, rf"\g<1>{MASK}", re.sub(_LOGIN, _without, text))
    if "@" in text:
        text = re.sub(_BARE_LOGIN, rf"\g<1>{MASK}@", text)
    if "%40" in text:
        text = re.sub(_ENCODED_LOGIN, rf"\g<1>{MASK}\g<2>", text)
    if "PRIVATE KEY" in text:
        text = re.sub(_PEM, rf"\g<1>{MASK}\g<2>", text)
    if len(text) < 8:
        return text
    text = _LETTERS.sub(MASK, _TOKENS.sub(MASK, text))
    if "=" in text or ":" in text:  # thousands of facts are paths, and both patterns begin by searching each letter
        text = _VARIABLE.sub(_pair, _PAIR.sub(_pair, text))
    if "--" in text or "curl" in text or "wget" in text:
        text = re.sub(_CURL_LOGIN, rf"\g<1>{MASK}", re.sub(_OPTION, _option, text))
    if "login" in text:
        text = re.sub(_NETRC, rf"\g<1>{MASK}", text)
    if "key" in text or "KEY" in text or "Key" in text:
        text = re.sub(_HEX_KEY, rf"\g<1>{MASK}", text)
    return _BEARER.sub(rf"\g<1> {MASK}", text)


def without_login(address: str) -> str:
    """An address without the user and password before its host, e.g. https://pypi.example/simple."""
    return re.sub(_LOGIN, lambda match: f"{match['scheme']}://", address)


def has_login(address: str) -> bool:
    """Whether an address carries a secret, which belongs in no command, no log and no list of processes."""
    return masked(address) != address


def _without(match: re.Match[str]) -> str:
    scheme, login = match["scheme"], match["login"]
    if login in (MASK, _ESCAPED) or (scheme.lower() in _BY_NAME_ALONE and ":" not in login):
        return match[0]
    return f"{scheme}://{MASK}@"


def _pair(match: re.Match[str]) -> str:
    name, joint, value = match.groups()
    if re.fullmatch(r"\\?[\"']\s*:\s*", joint):  # a number or a list of a document: secrets are texts
        return match[0]
    if re.fullmatch(_HARMLESS, value) or (re.search(_COUNTED, name) and re.fullmatch(_COUNT, value)):
        return match[0]
    return f"{name}{joint}{MASK}"


def _option(match: re.Match[str]) -> str:
    return match[0] if re.fullmatch(_HARMLESS, match[2]) else f"{match[1]}{MASK}"
