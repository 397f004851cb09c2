"""Ways that change the system's own files: where those come with an image, none of them stays, or works at all."""

from __future__ import annotations

from firstlight.ways import kinds

OF_THE_IMAGE = (
    kinds.SetUpRepository, kinds.InstallPackages, kinds.RemovePackages, kinds.HoldPackages, kinds.InstallDriver,
    kinds.BuildModules, kinds.ForbidModule, kinds.SetModuleOption, kinds.EnrolKey, kinds.RegisterFolder,
    kinds.RefreshLoaderCache, kinds.ConfigureContainers, kinds.ChooseModules, kinds.StartKernel,
    kinds.AllowLockedMemory,
)  # fmt: skip
