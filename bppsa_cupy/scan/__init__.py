"""The numeric scan, and the scan as a primitive on its own."""

from bppsa_cupy.scan.numeric import NumericScan
from bppsa_cupy.scan.primitive import make_chain, plan_scan, scan
