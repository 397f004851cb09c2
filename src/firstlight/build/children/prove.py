"""Run by the environment that got the wheel: imports it, calls it, compares with a result that is known."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

OF_DRIVER = ("libcuda.so.1:", "libnvidia-ml.so.1:")


def proved(what: str, call: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"what": what, "holds": True, "saw": str(call())}
    except BaseException as error:
        return {"what": what, "holds": False, "saw": f"{type(error).__name__}: {error}"}


def imported(question: dict[str, Any]) -> str:
    """What can be imported; a compiled module that wants the driver's own library is left where there is none."""
    for name in (*question["before"], *question["modules"]):
        importlib.import_module(name)
    said = list(question["modules"])
    for name in question["inside"]:
        try:
            importlib.import_module(name)
            said.append(name)
        except ImportError as error:
            if not str(error).startswith(OF_DRIVER):
                raise
            said.append(f"{name} not: {str(error).partition(':')[0]} comes with the driver")
    return ", ".join(said)


def mapped() -> set[str]:
    """The libraries that are loaded into this process."""
    with open("/proc/self/maps") as file:
        return {line.split(None, 5)[5].strip() for line in file if ".so" in line}


def libraries() -> str:
    """Every library that is mapped into this process is a file that is there."""
    paths = mapped()
    gone = sorted(path for path in paths if path.endswith("(deleted)"))
    if gone:
        raise OSError(f"replaced while it ran: {gone[0]}")
    return f"{len(paths)} shared libraries are loaded"


def torch_itself() -> str:
    import torch

    a = torch.arange(12.0).reshape(3, 4)
    assert float((a @ a.T).sum()) == 1782.0, "a product is wrong"
    if torch.cuda.is_available():
        b = a.cuda()
        assert float((b @ b.T).sum()) == 1782.0, "a product on the GPU is wrong"
    return torch.__config__.show().splitlines()[1].strip()


def torch_scatter() -> str:
    import torch
    from torch_scatter import scatter_add

    where = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    for device in where:
        source = torch.arange(6.0, device=device)
        index = torch.tensor([0, 1, 0, 1, 2, 2], device=device)
        expected = torch.zeros(3, device=device).index_add_(0, index, source)
        assert torch.equal(scatter_add(source, index), expected), f"scatter_add is wrong on {device}"
    return f"scatter_add equals index_add_ on {' and '.join(where)}"


def causal_conv1d() -> str:
    import torch
    from causal_conv1d import causal_conv1d_fn

    if not torch.cuda.is_available():
        return "not called: no GPU here"
    torch.manual_seed(0)
    x, weight = torch.randn(2, 64, 128, device="cuda"), torch.randn(64, 4, device="cuda")
    expected = torch.nn.functional.conv1d(x, weight.unsqueeze(1), padding=3, groups=64)[..., :128]
    gap = float((causal_conv1d_fn(x, weight) - expected).abs().max())
    assert gap < 1e-3, f"differs by {gap}"
    return f"differs from conv1d by {gap:.1e}"


def flash_attn() -> str:
    import torch
    from flash_attn import flash_attn_func

    if not torch.cuda.is_available():
        return "not called: no GPU here"
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 128, 4, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    rows = [each.transpose(1, 2).float() for each in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(rows[0], rows[1], rows[2])
    gap = float((flash_attn_func(q, k, v).float() - expected.transpose(1, 2)).abs().max())
    assert gap < 5e-3, f"differs by {gap}"
    return f"differs from torch's attention by {gap:.1e}"


def lightgbm() -> str:
    import lightgbm
    import numpy

    x = numpy.arange(200.0).reshape(-1, 1)
    model = lightgbm.train({"verbose": -1, "min_data": 1}, lightgbm.Dataset(x, label=(x[:, 0] > 100).astype(float)), 10)
    low, high = model.predict(numpy.array([[10.0], [190.0]]))
    assert low < 0.5 < high, f"predicts {low} and {high}"
    return f"lightgbm {lightgbm.__version__} separates 10 from 190"


CALLS = {
    "torch": torch_itself, "torch-scatter": torch_scatter, "causal-conv1d": causal_conv1d, "flash-attn": flash_attn,
    "lightgbm": lightgbm,
}  # fmt: skip


def main() -> None:
    question = json.loads(sys.argv[1])
    answers = [proved("import", lambda: imported(question))]
    if answers[0]["holds"]:
        names = sorted(path.rpartition("/")[2] for path in mapped())
        answers.append({**proved("libraries", libraries), "loaded": names})
        if question["project"] in CALLS:
            answers.append(proved("call", CALLS[question["project"]]))
    print(json.dumps(answers))


main()
