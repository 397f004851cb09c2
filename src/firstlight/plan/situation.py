"""One machine as the option builders see it: what blocks, what is wanted, and whether the driver is what is too old."""

from __future__ import annotations

from firstlight.diagnosis.build_flags_rules import toolkit_in_use
from firstlight.diagnosis.compat_choice import driver_runs
from firstlight.diagnosis.finding import Diagnosis, Finding, Question, Severity
from firstlight.diagnosis.observed import is_wanted
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.frozen import dataclass
from firstlight.plan.building import environment_to_change, installed_versions
from firstlight.plan.costs import no_cost
from firstlight.plan.option import Kind, Option, Proof, Reversible, Risk
from firstlight.plan.request import Request
from firstlight.plan.sets import PackageSet
from firstlight.plan.way_back import what_is_lost
from firstlight.versions import CudaVersion, DriverVersion, TorchVersion

# The remedies of findings that each kind of option stands for; every other remedy is a repair.
ANSWERS: dict[Kind, tuple[str, ...]] = {
    Kind.REMOVE: (
        "remove-from-library-path", "remove-compat", "remove-preload", "remove-linux-driver", "remove-empty-library",
        "remove-duplicate", "unset-mask", "unset-python-path", "leave-folder",
    ),
    Kind.COMPAT: ("install-forward-compat", "wire-forward-compat"),
    Kind.WHEEL: ("install-other-wheel", "install-torch"),
    Kind.TOOLKIT: ("install-toolkit-wheels", "set-cuda-home", "link-toolkit-parts"),
    Kind.DRIVER: ("upgrade-driver", "install-driver", "install-open-module"),
    Kind.MACHINE: ("other-machine", "upgrade-driver"),
    Kind.CONTAINER: ("use-container", "restart-with-gpus"),
    Kind.SOURCE: ("build-from-source",),
}  # fmt: skip
# Toolkits of one major share these limits closely enough that fetching another one is no way out by itself.
NOT_OF_THE_TOOLKIT = ("host-compiler-out-of-range", "glibc-breaks-cuda-headers", "arch-unknown-to-toolkit")
_FOR_AN_OLD_DRIVER = (Kind.COMPAT, Kind.DRIVER, Kind.MACHINE)
_WITH_TORCH = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
_BRING_PACKAGES = (Kind.WHEEL, Kind.REMOVE, Kind.REPAIR, Kind.COMPAT, Kind.DRIVER)
_NOT_REPAIRS = {remedy for remedies in ANSWERS.values() for remedy in remedies}


@dataclass(frozen=True, slots=True)
class Situation:
    """What every builder is given; `wanted`: the set of packages to install besides (none or one)."""

    question: Question
    diagnosis: Diagnosis
    request: Request
    wanted: tuple[PackageSet, ...] = ()

    @property
    def facts(self) -> Facts:
        return self.question.facts

    @property
    def primary(self) -> Finding | None:
        return self.diagnosis.of(self.diagnosis.primary) if self.diagnosis.primary else None

    @property
    def kernel(self) -> DriverVersion | None:
        driver = self.facts.driver.kernel_version
        return driver.value if isinstance(driver, Known) else None

    @property
    def installed(self) -> TorchVersion | None:
        """The torch that is installed; None where there is none, or only one that is wanted."""
        torch = self.facts.torch
        if isinstance(torch, Unknown) or is_wanted(self.facts) or isinstance(torch.value.version, Unknown):
            return None
        return torch.value.version.value

    @property
    def torch_cuda(self) -> CudaVersion | None:
        """The CUDA of the torch that has to run: of the wanted set, else of the torch that is judged."""
        if self.wanted:
            cuda = self.wanted[0].torch.cuda
        else:
            torch = self.facts.torch
            cuda = torch.value.wheel_cuda if isinstance(torch, Known) else Unknown("no torch")
        return cuda.value if isinstance(cuda, Known) else None

    @property
    def needs(self) -> CudaVersion | None:
        """The CUDA that the kernel driver by itself is too old for; None where it runs what has to run."""
        if self.kernel is None:
            return None
        cuda = self._toolkit_too_new() if self.is_primary("driver-too-old-for-toolkit") else self.torch_cuda
        if cuda is None or driver_runs(self.question, self.kernel, major=cuda.major):
            return None
        return cuda

    @property
    def driver_blocks_want(self) -> bool:
        """Whether what was asked for by name needs a newer driver than the one here."""
        return bool(self.wanted) and self.needs is not None

    @property
    def primary_is_of_torch(self) -> bool:
        """Whether nothing but torch itself is wrong: another torch in its place is a matter of wants alone."""
        primary = self.primary
        if primary is None or not self.is_blocked:
            return True
        return any(remedy in ANSWERS[Kind.WHEEL] for remedy in primary.remedies)

    @property
    def is_blocked(self) -> bool:
        """Whether the primary finding keeps CUDA in torch from working; else it only degrades."""
        return self.primary is not None and self.primary.severity is Severity.BLOCKS

    def is_primary(self, *codes: str) -> bool:
        return self.diagnosis.primary in codes

    def answered_by(self, kind: Kind) -> bool:
        """Whether an option of this kind answers the primary finding, e.g. another wheel a driver that is too old."""
        primary = self.primary
        if self.driver_blocks_want and kind in _FOR_AN_OLD_DRIVER and self.primary_is_of_torch:
            return True
        if primary is None:
            return False
        if kind is Kind.REPAIR:
            return any(remedy not in _NOT_REPAIRS for remedy in primary.remedies)
        return any(remedy in ANSWERS[kind] for remedy in primary.remedies)

    def because(self, kind: Kind) -> tuple[str, ...]:
        """The codes of the findings that a kind answers: the primary one and others that block."""
        standing = [each for each in self.diagnosis.findings if not each.caused_by]
        blocking = [
            each.code
            for each in standing
            if each.severity is Severity.BLOCKS and any(remedy in ANSWERS.get(kind, ()) for remedy in each.remedies)
            if kind is not Kind.TOOLKIT or each.code not in NOT_OF_THE_TOOLKIT or self._changes_major()
        ]
        first = (self.diagnosis.primary,) if self.diagnosis.primary else ()
        return tuple(dict.fromkeys((*first, *blocking)))

    def _changes_major(self) -> bool:
        """Whether a toolkit of torch's CUDA is of another major than the one in use, which has other limits."""
        toolkit, cuda = toolkit_in_use(self.facts), self.torch_cuda
        nvcc = toolkit.nvcc_version if toolkit is not None else Unknown("no toolkit")
        return isinstance(nvcc, Known) and cuda is not None and nvcc.value.major != cuda.major

    def blank(self, kind: Kind, name: str) -> Option:
        """An option of a kind that costs nothing and promises all that is asked; the builder fills in the rest."""
        because = self.because(kind)
        return Option(
            id=f"{kind.value}:{name}",
            kind=kind,
            title="",
            because=because,
            proof=Proof.GUESSED,
            proof_by="",
            satisfies=self.asked(),
            leaves_out=self._still_blocking(because),
            cost=no_cost(self.request),
            needs_root=False,
            reversible=self._packages_come_back(kind),
            risk=Risk.NONE,
            feasible=True,
            why_not="",
            brings=(),
            index="",
            folder="",
        )

    def _packages_come_back(self, kind: Kind) -> Reversible:
        """Partly where the option puts a torch in the place of one that no index has, or no longer."""
        environment = environment_to_change(self.question)
        have = installed_versions(environment)
        stays = any(pick.requirement == f"torch=={have.get('torch')}" for each in self.wanted for pick in each.picks)
        if kind not in _BRING_PACKAGES or (kind is not Kind.WHEEL and (stays or not self.wanted)):
            return Reversible.YES
        if environment is None or self._has_project(environment.kind):
            return Reversible.YES  # a new environment is removed whole; a project's lock file is put back
        return Reversible.PARTLY if what_is_lost(self.question, _WITH_TORCH) else Reversible.YES

    def _has_project(self, kind: EnvironmentKind) -> bool:
        return kind in (EnvironmentKind.UV_VENV, EnvironmentKind.PIXI) and bool(self.facts.python.project_files)

    def asked(self) -> tuple[str, ...]:
        """What should hold afterwards: the wants, the torch release that is installed, the goal."""
        wants = tuple(want.text for want in self.request.wants)
        kept = (f"torch {self.installed.public}",) if not wants and self.installed is not None else ()
        return (*wants, *kept, f"the goal {self.request.goal.value}")

    def _still_blocking(self, because: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            f"{each.code} has to be answered too"
            for each in self.diagnosis.findings
            if each.severity is Severity.BLOCKS and not each.caused_by and each.code not in because
        )

    def _toolkit_too_new(self) -> CudaVersion | None:
        versions = [each.version.value for each in self.facts.toolkits.toolkits if isinstance(each.version, Known)]
        return max(versions, default=None)


def repairs_of(finding: Finding) -> tuple[str, ...]:
    """The remedies of a finding that no other kind of option stands for, e.g. reboot."""
    return tuple(remedy for remedy in finding.remedies if remedy not in _NOT_REPAIRS)
