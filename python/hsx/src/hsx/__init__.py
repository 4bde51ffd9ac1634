"""Reads the datasets that `hsx ingest` writes: hidden states of a target model, sample by sample.

ds = hsx.open("DS")
ds[0]["P_2"]                                     # a view of the mapped file, [tokens, hidden size]
train = ds.torch(layers=[2, 30, 58], final="post")   # a map-style dataset for a DataLoader
"""

from hsx._dataset import Dataset, Sample, open
from hsx._errors import CorruptError, HsxError, VersionError
from hsx._sampler import ShardSampler

__all__ = ["CorruptError", "Dataset", "HsxError", "Sample", "ShardSampler", "VersionError", "open"]
