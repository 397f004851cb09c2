"""Child: what NVML says of this machine, as one JSON object.

Arguments: the folder or zip that holds pynvml, and the seconds after which nothing more is asked. A field is its value,
or {"error": text, "code": number}. Serial numbers are not asked for.
"""

from __future__ import annotations

import sys
import time
from typing import Any

FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 13, 15, 16, 25
SM, MEMORY = 1, 2  # clock domains
UNCORRECTED, VOLATILE, AGGREGATE = 1, 0, 1
SINGLE_BIT, DOUBLE_BIT = 0, 1  # why a page was retired: many single-bit errors, or one of two bits
VGPU = 2  # of the virtualization modes
MOST_DEVICES, MOST_MIG_DEVICES = 128, 16  # a count above these is not a count

# (names of the results, functions tried in order, arguments after the device)
SYSTEM_FIELDS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("driver_version", "nvmlSystemGetDriverVersion", ()),
    ("nvml_version", "nvmlSystemGetNVMLVersion", ()),
    ("driver_cuda", "nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetCudaDriverVersion", ()),
    ("confidential_environment confidential_feature confidential_tools", "nvmlSystemGetConfComputeState", ()),
    ("confidential_ready", "nvmlSystemGetConfComputeGpusReadyState", ()),
)
DEVICE_FIELDS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("name", "nvmlDeviceGetName", ()),
    ("uuid", "nvmlDeviceGetUUID", ()),
    ("brand", "nvmlDeviceGetBrand", ()),
    ("architecture", "nvmlDeviceGetArchitecture", ()),
    ("capability_major capability_minor", "nvmlDeviceGetCudaComputeCapability", ()),
    ("memory_bytes", "nvmlDeviceGetMemoryInfo", ()),
    ("pci_address pci_device_id", "nvmlDeviceGetPciInfo", ()),
    ("mig_mode mig_pending", "nvmlDeviceGetMigMode", ()),
    ("ecc_mode ecc_pending", "nvmlDeviceGetEccMode", ()),
    ("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit", ()),
    ("power_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit", ()),
    ("power_min_mw power_max_mw", "nvmlDeviceGetPowerManagementLimitConstraints", ()),
    ("clock_sm_mhz", "nvmlDeviceGetClockInfo", (SM,)),
    ("clock_memory_mhz", "nvmlDeviceGetClockInfo", (MEMORY,)),
    ("clock_sm_max_mhz", "nvmlDeviceGetMaxClockInfo", (SM,)),
    ("clock_memory_max_mhz", "nvmlDeviceGetMaxClockInfo", (MEMORY,)),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", ()),
    ("compute_mode", "nvmlDeviceGetComputeMode", ()),
    ("virtualization", "nvmlDeviceGetVirtualizationMode", ()),
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ("temperature_c", "nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV", (0,)),
    ("throttle_bits", "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons", ()),
    ("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", (UNCORRECTED, VOLATILE)),
    ("ecc_uncorrected_aggregate", "nvmlDeviceGetTotalEccErrors", (UNCORRECTED, AGGREGATE)),
    ("rows_correctable rows_uncorrectable rows_pending rows_failure", "nvmlDeviceGetRemappedRows", ()),
    ("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", ()),
)
MIG_DEVICE_FIELDS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("name", "nvmlDeviceGetName", ()),
    ("uuid", "nvmlDeviceGetUUID", ()),
    ("memory_bytes", "nvmlDeviceGetMemoryInfo", ()),
)


class Asker:
    """Asks pynvml one field at a time; after the deadline, or once the GPU is lost, nothing more is asked."""

    def __init__(self, nvml: Any, deadline: float) -> None:
        self.nvml = nvml
        self.deadline = deadline

    def ask(self, into: dict[str, object], fields: tuple[tuple[str, str, tuple[int, ...]], ...], *handle: Any) -> int:
        """Put every field into `into`; the code that speaks of the whole GPU (15 lost, 16 reset required), else 0."""
        code = 0
        lost: dict[str, Any] | None = None
        for names, functions, arguments in fields:
            found = lost or self._call(functions.split(), (*handle, *arguments))
            if isinstance(found, dict) and found.get("code") in (GPU_IS_LOST, RESET_REQUIRED):
                code, into["error"] = int(found["code"]), found["error"]
                lost = found if code == GPU_IS_LOST else None
            for name, value in zip(names.split(), _values(found), strict=False):
                into[name] = value
        return code

    def _call(self, functions: list[str], arguments: tuple[Any, ...]) -> Any:
        if time.monotonic() > self.deadline:
            return {"error": "not asked, the time was up"}
        failed: dict[str, object] = {}
        for name in functions:
            function = getattr(self.nvml, name, None)
            if function is None:
                failed = failed or {"error": f"this pynvml has no {name}", "code": FUNCTION_NOT_FOUND}
                continue
            try:
                return function(*arguments)
            except Exception as error:
                failed = failure(error)
            if failed["code"] not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                break
        return failed

    def fabric(self, into: dict[str, object], handle: Any) -> None:
        """State and status of the NVLink fabric; both are filled into a structure that the caller brings."""
        from ctypes import byref

        found: object = {"error": "this pynvml has no nvmlDeviceGetGpuFabricInfo", "code": FUNCTION_NOT_FOUND}
        for structure, function in (
            ("c_nvmlGpuFabricInfoV_t", "nvmlDeviceGetGpuFabricInfoV"),
            ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
        ):
            make = getattr(self.nvml, structure, None)
            if make is None:
                continue
            filled = make()
            found = self._call([function], (handle, byref(filled)))
            if not isinstance(found, dict):
                into["fabric_state"], into["fabric_status"] = int(filled.state), int(filled.status)
                into["fabric_health"] = int(getattr(filled, "healthMask", 0))
                into["fabric_clique"] = int(filled.cliqueId)
                return
            if found.get("code") not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                break
        into["fabric_state"] = into["fabric_status"] = found

    def mig_devices(self, handle: Any) -> object:
        """The MIG devices of one GPU; empty slots are left out."""
        count = self._call(["nvmlDeviceGetMaxMigDeviceCount"], (handle,))
        if isinstance(count, dict):
            return count
        devices: list[dict[str, object]] = []
        for index in range(min(count, MOST_MIG_DEVICES)):
            device = self._call(["nvmlDeviceGetMigDeviceHandleByIndex"], (handle, index))
            if not isinstance(device, dict):
                found: dict[str, object] = {}
                self.ask(found, MIG_DEVICE_FIELDS, device)
                devices.append(found)
        return devices

    def retired_pages(self, into: dict[str, object], handle: Any) -> None:
        """How many pages were taken out of use, by cause; their addresses tell nobody anything."""
        for name, cause in (("retired_pages_single", SINGLE_BIT), ("retired_pages_double", DOUBLE_BIT)):
            found = self._call(["nvmlDeviceGetRetiredPages"], (handle, cause))
            into[name] = len(found) if isinstance(found, list) else found

    def licences(self, handle: Any) -> object:
        """What a virtual GPU is licensed for: its product, and the state of each licence."""
        found = self._call(["nvmlDeviceGetGridLicensableFeatures"], (handle,))
        if isinstance(found, dict):
            return found
        count = min(int(found.licensableFeaturesCount), len(found.gridLicensableFeatures))
        return [
            {
                "product": _plain(each.productName),
                "state": int(each.featureState),
                "enabled": int(each.featureEnabled),
                "expires": _expiry(each.licenseExpiry),
            }
            for each in found.gridLicensableFeatures[:count]
        ]

    def device(self, index: int) -> dict[str, object]:
        """All fields of one GPU; `code` says what became of its handle."""
        found: dict[str, object] = {"index": index}
        handle = self._call(["nvmlDeviceGetHandleByIndex"], (index,))
        if isinstance(handle, dict):
            return {**found, **handle}
        found["code"] = self.ask(found, DEVICE_FIELDS, handle)
        if found["code"] != GPU_IS_LOST:
            self.fabric(found, handle)
            self.retired_pages(found, handle)
            if found["mig_mode"] == 1:
                found["mig_devices"] = self.mig_devices(handle)
            if found["virtualization"] == VGPU:
                found["licences"] = self.licences(handle)
        return found


def failure(error: Exception) -> dict[str, object]:
    code = getattr(error, "value", 0)
    text = str(error).rstrip(".") or type(error).__name__
    return {"error": text[:200], "code": code if isinstance(code, int) else 0}


def _values(found: Any) -> Any:
    """What a function returned as plain values, one for each name: an error stands for all of them."""
    if isinstance(found, dict):
        return [found] * 4
    if isinstance(found, (list, tuple)):
        return [_plain(item) for item in found]
    if hasattr(found, "ccFeature"):
        return [int(found.environment), int(found.ccFeature), int(found.devToolsMode)]
    if hasattr(found, "busId"):
        return [_plain(found.busId), int(found.pciDeviceId)]
    return [_plain(getattr(found, "total", found))]


def _expiry(date: Any) -> str:
    """The day a licence ends, e.g. 2026-11-17; "" where NVML has none."""
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}" if date.year else ""


def _plain(value: Any) -> object:
    if isinstance(value, bytes):  # pynvml before 11.5
        return value.decode("utf-8", "replace")
    return value if isinstance(value, (int, str)) else str(value)


def loaded_library() -> str:
    """The libnvidia-ml that the loader chose, e.g. /usr/lib64/libnvidia-ml.so.580.159.04; '' when none is mapped."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return next((line.split(None, 5)[5].strip() for line in maps if "/libnvidia-ml.so" in line), "")
    except OSError:
        return ""


def start(nvml: Any) -> dict[str, object]:
    """nvmlInit: {"code": 0}, or its code with the driver's own words, which pynvml's table puts differently."""
    try:
        nvml.nvmlInit()
    except Exception as error:
        failed = failure(error)
        try:
            said = nvml.nvmlErrorString(failed["code"])
            failed["error"] = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        except Exception:
            pass  # no library, so pynvml's own text stays
        return failed
    return {"code": 0}


def look(folder: str, limit_s: float) -> dict[str, object]:
    deadline = time.monotonic() + limit_s
    sys.dont_write_bytecode = True  # looking changes nothing, a __pycache__ neither
    if folder:
        sys.path.append(folder)  # last, so that nothing there shadows the standard library
    try:
        import pynvml
    except Exception as error:
        return {"unusable": f"pynvml cannot be imported ({type(error).__name__})"}
    answer: dict[str, object] = {"init": start(pynvml), "library": loaded_library()}
    if answer["init"] == {"code": 0}:
        asker = Asker(pynvml, deadline)
        asker.ask(answer, SYSTEM_FIELDS)
        asker.ask(answer, (("count", "nvmlDeviceGetCount", ()),))
        count = answer["count"]
        known = min(count, MOST_DEVICES) if isinstance(count, int) else 0
        answer["devices"] = [asker.device(index) for index in range(known)]
    return answer


def main() -> None:
    import json

    # sys.stdout is a pipe of its own: what a stub libnvidia-ml prints on fd 1 does not end up in our JSON.
    json.dump(look(sys.argv[1], float(sys.argv[2])), sys.stdout)


if __name__ == "__main__":
    main()
