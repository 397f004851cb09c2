"""firstlight: GPU bring-up. Diagnose, fix, prove and measure a PyTorch + CUDA machine.

The command is `firstlight`. From Python:

    import firstlight

    found = firstlight.diagnose()
    if found.blocked:
        print(found.primary.title, found.options[0].title)

All that is public stands in firstlight.api: look, diagnose, plan, explain, verify, check_claim and what they return.
look, diagnose and check_claim are here too; the other three names are the packages behind them (firstlight.plan is
one), so call firstlight.api.plan. Block-sparse products and attention are in firstlight.kernels. Every name:
docs/library.md.
"""

TYPE_CHECKING = False  # typing's would cost more than all else here
if TYPE_CHECKING:
    from firstlight.api import check_claim, diagnose, look

__version__ = "0.1.0"
__all__ = ["__version__", "check_claim", "diagnose", "look"]
_PACKAGES = ("explain", "plan", "verify")


def __getattr__(name: str) -> object:
    """A name of firstlight.api, imported when it is first asked for."""
    if name in __all__:
        from firstlight import api

        return getattr(api, name)
    hint = f"; call firstlight.api.{name}" if name in _PACKAGES else ""
    raise AttributeError(f"module 'firstlight' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
