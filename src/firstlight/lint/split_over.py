"""A model or processes over several GPUs: what a command says, and what it is told where there are fewer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from firstlight.frozen import dataclass
from firstlight.lint.model import Place, Target
from firstlight.lint.shell import whole_number
from firstlight.ways.kinds import StartContainer
from firstlight.ways.way import Chain, chain

OF_TORCH = re.compile(
    r"\b(?:torchrun|torch\.distributed|accelerate|deepspeed|horovodrun|text-generation-launcher)\b"
    r"|\bvllm(?: serve\b|\.entrypoints)|\bsglang(?: serve\b|\.launch_server)"
    r"|--dataloader[-_]num[-_]workers[= ][1-9]|--tensor-parallel-size|DataLoader"
)


@dataclass(frozen=True, slots=True)
class Split:
    """A model or processes over several GPUs: --tensor-parallel-size 8, --nproc-per-node 8."""

    option: str
    gpus: int
    place: Place

    @property
    def is_model(self) -> bool:
        return self.option in _TENSOR_PARALLEL


_TENSOR_PARALLEL = ("--tensor-parallel-size", "-tp", "--tp", "--tp-size", "--num-shard")
_PROCESSES = ("--nproc_per_node", "--nproc-per-node")  # of torchrun, each on a GPU of its own
# Of a model, and of processes: what happens where there are fewer GPUs.
STOPS = {
    True: (
        "It puts a part of the model on each, and stops where there are fewer.",
        "World size ({asked}) is larger than the number of available GPUs ({has}) in this node.",
    ),
    False: ("Each process takes a GPU of its own.", "RuntimeError: CUDA error: invalid device ordinal"),
}


def splits(target: Target) -> Iterator[Split]:
    """Over how many GPUs vLLM, SGLang or TGI is told to put a model, or torchrun its processes."""
    for ran in target.starts:
        words = [part for word in ran.words for part in (word.split("=", 1) if word.startswith("-") else (word,))]
        for option, value in itertools.pairwise(words):
            of_server = target.image.is_server or OF_TORCH.search(" ".join(ran.words))
            if option in _PROCESSES or (option in _TENSOR_PARALLEL and of_server):
                yield Split(option, whole_number(value) or 0, ran.place)


def less_split(split: Split, count: int, *, also: tuple[str, ...] = ()) -> Chain:
    """Fewer GPUs in the command, and where the file asks for them: `also`."""
    fits = f" and a model that fits into {count}" if split.is_model else ""
    asked = f" with `{also[0]}`" if also else ""
    title = f"take a machine with {split.gpus} GPUs, or {split.option} {count}{asked}{fits}"
    return chain(StartContainer((*also[1:], f"{split.option}={count}")), title=title)
