"""Data sets: readers of the usual layouts, and batches in an order that can be resumed."""

from bppsa_cupy.data.dataset import Batch, Dataset, Normalization, Split, batches, number_of_batches
from bppsa_cupy.data.loading import load
