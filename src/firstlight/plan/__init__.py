"""DECIDE: facts, findings and wants become ranked options, and one option becomes ordered steps. Pure."""

import sys

from firstlight import CallablePackage

sys.modules[__name__].__class__ = CallablePackage  # firstlight.plan() is firstlight.api.plan()
