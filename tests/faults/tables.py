"""All cases, in the order of the page."""

from tests.faults.asked import CALLS, PARAMETERS, UNICODE
from tests.faults.bodies import BODIES_TABLE
from tests.faults.case import Case
from tests.faults.contradictions import CONTRADICTIONS
from tests.faults.cuts import CUTS
from tests.faults.network import LIMITS, NETWORK
from tests.faults.strangers import STRANGERS
from tests.faults.wire import WIRE

CASES: list[Case] = [
    *WIRE,
    *CUTS,
    *CONTRADICTIONS,
    *CALLS,
    *BODIES_TABLE,
    *NETWORK,
    *LIMITS,
    *PARAMETERS,
    *UNICODE,
    *STRANGERS,
]
