"""`firstlight bench check-claim`: can this number be true."""

from __future__ import annotations

import click

_EPILOG = (
    "Example: firstlight bench check-claim --gpu H100 --case sdpa --shape B=16,H=96,S=4096,D=128,causal "
    "--dtype fp16 --ms 12.27 --tflops 1075"
)
_EXIT_CODES = {True: 0, False: 1, None: 4}


@click.command(
    "check-claim", epilog=_EPILOG, short_help="can this number be true: recompute it, compare it with the silicon"
)
@click.option(
    "--case",
    metavar="CASE",
    required=True,
    help="gemm, sdpa, linear, conv2d, layernorm, softmax, add, copy, triad, fill, link, resnet50, encoder.",
)
@click.option(
    "--shape", metavar="SHAPE", required=True, help="Its sizes, e.g. 8192x8192x8192 or B=8,H=12,S=512,D=64,causal."
)
@click.option(
    "--dtype", default="fp16", show_default=True, help="fp64, fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4 or int8."
)
@click.option("--gpu", default="", metavar="NAME", help="The GPU, e.g. H100 or 'RTX 5090'.")
@click.option(
    "--facts",
    "facts_file",
    default="",
    metavar="PATH",
    help="A saved machine (or example:NAME) whose first GPU it was, instead of --gpu.",
)
@click.option("--ms", default="", metavar="N", help="The claimed time of one call in milliseconds, as written.")
@click.option("--tflops", default="", metavar="N", help="The claimed rate, as written.")
@click.option("--gbps", default="", metavar="N", help="The claimed rate in GB/s, as written.")
@click.option("--link", default="", metavar="LINK", help="For --case link: e.g. pcie5x16 or nvlink4.")
@click.option("--saturates", is_flag=True, help="The claim also says that the limit is reached.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema firstlight.claim/1).")
def command(as_json: bool, saturates: bool, **typed: str) -> None:  # noqa: FBT001 click's flags
    """Say whether a claimed time or rate can be true on a GPU, and what is wrong with it and by how much.

    Nothing is measured: the work is counted from the shape and held against the clock ceiling of the GPU.
    Exit code 0: it can be true; 1: it cannot; 2: the claim is not understood; 4: it cannot be judged, because the
    peak of the GPU in that dtype is not known, or the link was not said.
    """
    import json

    from firstlight.bench.claim import judge_claim
    from firstlight.bench.claim_input import Told, claim_of
    from firstlight.report.bench_claim_text import claim_document, claim_text
    from firstlight.tables import load

    claim = claim_of(Told(saturates="yes" if saturates else "", **typed), load())
    judgement = judge_claim(claim)
    if as_json:
        click.echo(json.dumps(claim_document(claim, judgement), indent=1))
    else:
        click.echo(claim_text(claim, judgement), nl=False)
    click.get_current_context().exit(_EXIT_CODES[judgement.can_be_true])
