"""Training over two ranks with callbacks that differ by rank: `ranks_callbacks.py OVER WHAT RANK`.

WHAT  "stop": the callback of RANK ends training in its second epoch; "state": it takes the network's state,
      which all ranks would have to do together; "end": the state is taken behind training
Each rank prints the number of its steps, and whether it looks at the network.
"""

import sys

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.distributed import guard
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

over, what, chosen = sys.argv[1], sys.argv[2], int(sys.argv[3])
with guard():
    group = bp.Group(device="host")

    def callback(network, row):
        if group.rank == chosen and row["step"] == 5:
            if what == "state":
                network.state_dict()  # alone
            return what == "stop"
        return False

    layers = [bp.Linear(4, 6), bp.Tanh(), bp.Linear(6, 3)]
    whole = bp.Sequential(layers, (4,), seed=0, device="host")
    data = Dataset("made", (4,), 3, Split(np.ones((12, 4), "float32"), np.arange(12) % 3, None), None, None)
    settings = Settings(epochs=4, batch_size=4, method="bp", callbacks=[callback])
    trained = bp.Pipeline(whole, (1,), "1f1b", group) if over == "pipeline" else bp.distribute(whole, group)
    network = trained.network if over == "pipeline" else trained
    history = train(trained, data, bp.SGD(network.parameters, lr=0.1), settings)
    print(len(history.rows), flush=True)
    if what == "end" and group.rank == chosen:
        network.state_dict()
