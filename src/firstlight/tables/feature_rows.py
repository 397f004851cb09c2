"""Rows about the features of torch that field reports claim, and whether there is such a thing."""

from firstlight.tables.row import Row, row_class
from firstlight.versions import ComputeCapability


@row_class(frozen=True, slots=True, kw_only=True)
class Feature(Row):
    """A feature by the name it is claimed under: fp8, from capability 8.9 on, proved by running a product.

    exists is False for a name that nothing reads, e.g. the build flag USE_TENSOREXPR; `is_so` says what is so instead.
    """

    feature: str
    title: str
    claim: str  # in the words of the report that claims it
    how: str  # what `verify` does to find out
    exists: bool = True
    least_capability: ComputeCapability | None = None  # the first GPU that can run it
    is_so: str = ""
