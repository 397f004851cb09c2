"""Rows about the faults that the driver logs as Xid."""

from enum import Enum

from firstlight.tables.row import Row, row_class


class XidAction(Enum):
    """What NVIDIA's catalogue says to do."""

    NOTHING = "nothing"
    RESTART_PROGRAM = "restart-program"
    RESET_GPU = "reset-gpu"
    RESTART_MACHINE = "restart-machine"  # power off and on
    RESTART_GUEST = "restart-guest"
    RESTART_FABRIC = "restart-fabric"  # Fabric Manager
    UPDATE_SOFTWARE = "update-software"
    CHECK_POWER = "check-power"
    CHECK_LINKS = "check-links"
    FOLLOW_OTHER = "follow-other"  # the Xid beside it says what
    SUPPORT = "support"


class LiesWith(Enum):
    """Where the fault mostly is."""

    PROGRAM = "program"
    GPU = "gpu"
    LINK = "link"
    DRIVER = "driver"
    MACHINE = "machine"


@row_class(frozen=True, slots=True, kw_only=True)
class Xid(Row):
    """An Xid: 79, the GPU cannot be reached over PCIe any more, power the machine off and on."""

    code: int
    name: str  # NVIDIA's
    meaning: str
    action: XidAction
    if_again: XidAction
    lies_with: LiesWith
