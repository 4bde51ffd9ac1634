"""Holds hsx.open of a dataset in a store against the same one in a directory: check_loader.py DIR URL ENDPOINT."""
import os
import sys

import numpy as np

import hsx


def compare(got, want, order):
    for i in order:
        a, b = got[i], want[i]
        assert a.keys() == b.keys()
        for key, value in b.items():
            if isinstance(value, np.ndarray):
                assert a[key].dtype == value.dtype and a[key].tobytes() == value.tobytes(), (i, key)
            else:
                assert a[key] == value, (i, key)


directory, url, endpoint = sys.argv[1:]
want = hsx.open(directory)
options = {"endpoint_url": endpoint}
for verify in (False, "manifest", "files", "samples"):
    compare(hsx.open(url, verify=verify, storage_options=options), want, range(len(want)))

ds = hsx.open(url, storage_options=options)
ds[0]
if (child := os.fork()) == 0:  # as the workers of a DataLoader: what is open in a parent's loop is of no use to them
    compare(ds, want, reversed(range(len(want))))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "a forked child reads it too"
sampler = ds.sampler(seed=1)
compare(list(ds.iter_shards(sampler)), [want[i] for i in sampler], range(len(want)))
try:
    hsx.open(url + "/elsewhere", storage_options=options)
except hsx.HsxError as e:
    assert "it is no dataset" in str(e), e
else:
    raise AssertionError("what is no dataset was opened")
print(len(want), "samples")
