"""Training over ranks with callbacks that differ by rank: `ranks_callbacks.py OVER WHAT RANK`.

WHAT  "stop": the callback of RANK ends training in its second epoch; "call": it calls the network, which all
      ranks would have to do together; "end": that, behind training
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


def call_alone(network):
    network.eval()
    network.forward(np.ones((4, 6, 2), "float32"))
    network.train()


with guard():
    group = bp.Group(device="host")

    def callback(network, row):
        if group.rank == chosen and row["step"] == 5:
            if what == "call":
                call_alone(network)
            return what == "stop"
        return False

    layers = [bp.RNN(2, 4, outputs="last"), bp.Linear(4, 6), bp.Tanh(), bp.Linear(6, 3)]
    whole = bp.Sequential(layers, (6, 2), seed=0, device="host")
    split = Split(np.ones((12, 6, 2), "float32"), np.arange(12) % 3, None)
    data = Dataset("made", (6, 2), 3, split, None, None)
    settings = Settings(epochs=4, batch_size=4, method="bp", callbacks=[callback])
    trained = (
        bp.Pipeline(whole, (1,), "1f1b", group)
        if over == "pipeline"
        else bp.distribute(whole, group, over=over)
    )
    network = trained.network if over == "pipeline" else trained
    history = train(trained, data, bp.SGD(network.parameters, lr=0.1), settings)
    print(len(history.rows), flush=True)
    if what == "end" and group.rank == chosen:
        call_alone(network)
