"""DECIDE: facts, findings and wants become ranked options, and one option becomes ordered steps. Pure."""
