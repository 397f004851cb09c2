"""firstlight: GPU bring-up. Diagnose, fix, prove and measure a PyTorch + CUDA machine.

The command is `firstlight`. From Python:

    import firstlight

    found = firstlight.diagnose()
    if found.blocked:
        print(found.primary.title, found.options[0].title)

All that is public stands in firstlight.api: look, diagnose, plan, explain, verify, check_claim and what they return.
The six can be called here too; plan, explain and verify are at the same time the packages behind them. Block-sparse
products and attention are in firstlight.kernels. Every name: docs/library.md.
"""

import sys

TYPE_CHECKING = False  # typing's would cost more than all else here
if TYPE_CHECKING:
    from types import ModuleType

    from firstlight.api import check_claim, diagnose, explain, look, plan, verify
else:
    ModuleType = type(sys)

__version__ = "0.1.0"
__all__ = ["__version__", "check_claim", "diagnose", "explain", "look", "plan", "verify"]
_PACKAGES = ("explain", "plan", "verify")


def __getattr__(name: str) -> object:
    """A name of firstlight.api, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'firstlight' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"firstlight.{name}") if name in _PACKAGES else getattr(import_module("firstlight.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class CallablePackage(ModuleType):
    """A package that is called as the function of firstlight.api with its name: firstlight.plan(wants=["torch"])."""

    def __call__(self, *given: object, **named: object) -> object:
        from firstlight import api

        return getattr(api, self.__name__.rpartition(".")[2])(*given, **named)
