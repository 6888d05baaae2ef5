"""Data sets: readers of the usual layouts, and batches in an order that can be resumed."""

from bppsa_cupy.data.batching import Batch, batches, number_of_batches
from bppsa_cupy.data.dataset import Dataset, Normalization, Split
from bppsa_cupy.data.loading import load
