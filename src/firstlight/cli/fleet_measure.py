"""`firstlight fleet verify` and `fleet bench`: prove and measure on every host, kept as a run."""

from __future__ import annotations

from typing import Any

import click

from firstlight.cli.fleet_hosts import host_options
from firstlight.cli.fleet_run import do_on_hosts, engine_options, work_options
from firstlight.errors import BadInput
from firstlight.fleet.run import Verb
from firstlight.secrets import masked


@click.command(
    "verify",
    short_help="prove on every host what `firstlight verify` proves; kept as a run",
    epilog="Example: firstlight fleet verify -i inventory.yml --only gpus,cublas",
)
@host_options
@engine_options
@click.option("--only", default="", metavar="NAME,..", help="Run these checks alone, and require each to be proved.")
@click.option("--skip", default="", metavar="NAME,..", help="Leave these checks out; they count as not proved.")
@click.option("--python", default="", metavar="PATH", help="Prove the environment of this interpreter there.")
@work_options
@click.pass_context
def verify_command(ctx: click.Context, /, **given: Any) -> None:
    """Run `firstlight verify` on every host, by Ansible over ssh, and keep the proof of each as a run.

    On a host only firstlight's own folder changes. `verify.json` of a host lies in the run's folder. Exit code
    0: proved on every host; 1: a check failed somewhere; 4: a host could not be reached or is at work; 2: the call
    cannot be used; 130: interrupted, and what has begun on a host continues there.
    """
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.runner import chosen

    for option in ("only", "skip"):
        chosen(CHECKS, tuple(part.strip() for part in given[option].split(",") if part.strip()))
    _require_python(given["python"])
    do_on_hosts(ctx, Verb.VERIFY, _words(given, ("only", "skip", "python")), given)


@click.command(
    "bench",
    short_help="measure every GPU of every host; kept as a run, one JSON for each",
    epilog="Example: firstlight fleet bench -i inventory.yml --effort quick",
)
@host_options
@engine_options
@click.option("--effort", type=click.Choice(["quick", "standard"]), default="quick", show_default=True,
              help="quick: under 45 s for each GPU and run; standard: under 3 minutes.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 9), default=2, show_default=True, help="How often each is measured.")
@click.option("--device", type=click.Choice(["all", "cpu"]), default="all", show_default=True,
              help="all: every GPU, one after another; cpu: the processor.")  # fmt: skip
@click.option("--only", default="", metavar="PATTERN,..", help="Families, starts of ids or patterns of cases.")
@click.option("--python", default="", metavar="PATH", help="Measure the torch of this interpreter there.")
@click.option(
    "--baseline",
    multiple=True,
    metavar="RUN.json",
    help="A run of bench to compare GPUs with where fewer than 5 are equal.",
)
@click.option("--lock", "lock_file", metavar="FILE", default="",
              help="Take the baseline that this lock names: a file beside it, or the one of --baseline.")  # fmt: skip
@work_options
@click.pass_context
def bench_command(ctx: click.Context, /, **given: Any) -> None:
    """Run `firstlight bench` for every GPU of every host, by Ansible over ssh, and keep one JSON for each as a run.

    The torch that is measured is that of the environment which `fleet doctor` judges there. The documents are
    HOST/gpu-0-run-1.json and so on in the run's folder; `firstlight bench compare` reads them. A GPU is called slow
    when it is more than 5 % and more than 4 MAD below equal ones in every run, two at least. Fewer than 5 equal GPUs
    are compared with healthy cards of their model and with the baseline. Exit code 0: measured on every host; 1: a
    host failed, or a figure is wrong; 4: a host could not be reached or is at work; 3: a GPU is slow; 2: the call
    cannot be used; 130: interrupted, and what has begun on a host continues there.
    """
    from firstlight.cli.fleet_slow import baselines

    _require_python(given["python"])
    given["baselines"] = baselines(given)
    words = (str(given["runs"]), given["device"], given["python"], "--effort", given["effort"])
    do_on_hosts(ctx, Verb.BENCH, () if given["retry"] else (*words, *_words(given, ("only",))), given)


def _require_python(path: str) -> None:
    if path and not path.startswith("/"):
        raise BadInput(f"--python {path!a}: accepted is an absolute path on the hosts, e.g. /opt/venv/bin/python")


def _words(given: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word for name in names if given[name] for word in (f"--{name}", given[name]))
    for word in words:
        if masked(word) != word:
            raise BadInput(f"{masked(word)!a} holds a secret, which would stand in lists of processes on every host")
    return words
