"""The login of a repository's address: handed to git in the environment, written nowhere."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from firstlight.secrets import has_login, without_login


def address_without_login(url: str) -> str:
    """https://host/x.git; an ssh user, who is no secret, stays."""
    return without_login(url) if has_login(url) else url


def git_variables(url: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables by which git uses the login of an address for its host, submodules there included; {} for none.

    A command line is read by everybody on the machine, and .git/config is copied with the tree.
    """
    if not has_login(url):
        return {}
    parts = urllib.parse.urlsplit(url)
    clean = urllib.parse.urlsplit(address_without_login(url))
    at = int(env.get("GIT_CONFIG_COUNT", "0") or 0)
    return {
        "GIT_CONFIG_COUNT": str(at + 1),
        f"GIT_CONFIG_KEY_{at}": f"url.{parts.scheme}://{parts.netloc}/.insteadOf",
        f"GIT_CONFIG_VALUE_{at}": f"{clean.scheme}://{clean.netloc}/",
    }
