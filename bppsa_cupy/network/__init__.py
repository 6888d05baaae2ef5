"""Networks: architecture, passes, forward and backward."""

from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.network.passes import METHODS
from bppsa_cupy.network.prune import prune, regrow
from bppsa_cupy.network.sequential import Sequential
