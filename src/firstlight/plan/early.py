"""Torch before its release: nightlies and release candidates, whose numbers and requirements no table can hold."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import listed
from firstlight.errors import BadVersion
from firstlight.facts.known import Known, Unknown
from firstlight.plan.builds import Build, builds_for
from firstlight.plan.pins import Place
from firstlight.plan.sets import PackageSet, Pick
from firstlight.plan.want import Channel, Want
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import TorchVersion

_BESIDE_TORCH = ("torchvision", "torchaudio", "triton")
_RELEASE = 2  # the stage of a TorchVersion that is neither nightly nor a pre-release
_NOT_KNOWN = Unknown("sizes of early builds are not in the tables")


def is_early(torch: Want, channel: Channel) -> bool:
    """Whether what is wanted is not a release: by the channel, or by its number, 2.16.0.dev20261110."""
    version = _exact(torch)
    return channel is not Channel.STABLE or (version is not None and version.stage < _RELEASE)


def _exact(torch: Want) -> TorchVersion | None:
    try:
        return TorchVersion.parse(torch.exact)
    except BadVersion:
        return None


def early_sets(
    question: Question, wants: tuple[Want, ...], *, channel: Channel, place: Place
) -> tuple[tuple[PackageSet, ...], str]:
    """The set of a channel, version "" where the newest is meant; or () and which part is impossible."""
    torch = next((want for want in wants if want.project == "torch"), Want("torch", "", "", "torch"))
    version = _exact(torch)
    if version is not None and version.stage >= _RELEASE:
        return (), (
            f"{torch.text} is a release, and the {channel.value} channel has none: a nightly is numbered like "
            f"{version.public}.devYYYYMMDD. Leave --channel out, or the version."
        )
    if channel is Channel.STABLE:
        channel = Channel.NIGHTLY if version is not None and version.is_nightly else Channel.TEST
    released = [w for w in wants if w.project in ("vllm", "xformers") or (w.project in _BESIDE_TORCH and w.specifier)]
    if released:
        names = listed(want.text for want in released)
        return (), f"{names} cannot be installed with a {channel.value} torch: releases require a released torch."
    build = _variant(question, torch, place)
    if build is None:
        known = f" with {torch.local}" if torch.local else ""
        return (
            (),
            f"No variant{known} of the newest torch runs here, so none of the {channel.value} channel is known to.",
        )
    index = index_of_build(build.cuda.tag, channel.value)
    number = torch.exact if version is not None else ""
    picks = [Pick("torch", number, Known(build.cuda, index), index, _NOT_KNOWN, build.cuda.tag if number else "")]
    for want in wants:
        if want.project in _BESIDE_TORCH:
            cuda = Unknown("triton brings a ptxas, no CUDA") if want.project == "triton" else Known(build.cuda, index)
            picks.append(Pick(want.project, "", cuda, index, _NOT_KNOWN))
        elif want.project == "flash-attn":
            against = Known(build.cuda, "compiled here against torch")
            picks.append(Pick(want.project, want.exact, against, "", _NOT_KNOWN, from_source=True))
    proof = (
        f"The {channel.value} channel of PyTorch's index was not looked at: that it has {build.cuda.tag} follows from "
        f"the variants of {build.torch.public} ({build.source}); requirements of early builds are not known."
    )
    return (PackageSet(tuple(picks), proof, place.machine),), ""


def _variant(question: Question, torch: Want, place: Place) -> Build | None:
    """The best variant of the newest release whose driver and GPUs are those of this machine; Python is not asked."""
    newest = question.tables.newest_torch(place.machine)
    if newest is None:
        return None
    like = Want("torch", f"=={newest.torch.public}", "", "torch")
    builds = [build for build in builds_for(question, like, place=Place(place.machine, "")) if not build.why_not]
    fitting = (build for build in builds if torch.local in ("", build.cuda.tag))
    return next(fitting, None)
