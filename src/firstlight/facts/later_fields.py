"""Fields that the first documents of schema firstlight.facts/1 lack: (type, field). They are read as not looked for.

A new field of a fact goes here, so that facts which somebody kept stay readable.
"""

from __future__ import annotations

from firstlight.records import Reading

LATER = frozenset(
    {
        ("PlaceFacts", "os_like"),
        ("PlaceFacts", "os_variant"),
        ("PlaceFacts", "os_codename"),
        ("PlaceFacts", "os_base"),
        ("PlaceFacts", "image_based"),
        ("PlaceFacts", "boot"),
        ("RuntimeFacts", "engines"),
        ("RuntimeFacts", "cdi_driver"),
        ("RuntimeFacts", "no_cgroups"),
        ("ContainerFacts", "rootless"),
        ("ContainerFacts", "library_path"),
        ("ContainerFacts", "label"),
        ("ContainerFacts", "label_enforced"),
        ("ContainerFacts", "device_numbers"),
        ("DriverFacts", "kernels_with_module"),
        ("DriverFacts", "kernel_replaced"),
        ("DriverFacts", "module_on_disk"),
        ("DriverFacts", "module_builds"),
        ("Facts", "fleet"),
        ("Facts", "library_owners"),
        ("Facts", "extensions"),
        ("RuntimeLibraries", "libc"),
        ("Companion", "gpu_requires"),
    }
)
FACTS = Reading(later=LATER)
