"""Who provides missing libraries: the choice that `doctor` and `libs` share, under the name that `libs` uses it by.

choose_providers(("libcudss.so.0",), arch="x86_64", cuda_major=13, pins={}, installed={}, tables=load())
"""

from __future__ import annotations

from firstlight.diagnosis.provider_choice import (
    Brought,
    NoProvider,
    Provided,
    Providers,
    SystemPackage,
    choose_providers,
    system_packages,
)

__all__ = ["Brought", "NoProvider", "Provided", "Providers", "SystemPackage", "choose_providers", "system_packages"]
