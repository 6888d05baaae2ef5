"""Pipelined training of a small network in NumPy, which keeps every version of every stage's weights.

It knows of no cycle and no table: a forward pass of batch b takes the weights after max(b − s, 0) updates,
where s is the stage's staleness, and the backward pass those after b updates, or the forward pass's own where
they are stashed.
"""

import numpy as np

#: Widths of the layers: linear, with tanh between them.
WIDTHS = (5, 7, 6, 8, 4, 3)
LAYERS = len(WIDTHS) - 1


def degree(schedule, stages, stage):
    """The updates that a forward pass of a stage (from 0) misses."""
    behind = stages - 1 - stage
    return {"stale": 2 * behind, "stale-1f1b": behind, "pipedream": behind}.get(schedule, 0)


def train(weights, batches, ppv, schedule, lr, momentum, velocity=None):
    """Weights and biases of each layer after one update a batch, their velocities, and the losses.

    weights   [(W, b)] of each layer; batches   (x, labels); ppv   the layers behind which stages end
    """
    stage_of = [sum(cut <= layer for cut in ppv) for layer in range(LAYERS)]
    versions = [[pair] for pair in weights]
    velocities = [[pair] for pair in (velocity or [tuple(np.zeros_like(a) for a in p) for p in weights])]
    losses = []
    for number, (x, labels) in enumerate(batches):
        used, inputs = [], [x]
        for layer in range(LAYERS):
            missed = min(number, degree(schedule, len(ppv) + 1, stage_of[layer]))
            pair = versions[layer][number - missed]
            used.append(pair)
            z = inputs[-1] @ pair[0].T + pair[1]
            inputs.append(np.tanh(z) if layer < LAYERS - 1 else z)
        scores = inputs.pop()
        shifted = np.exp(scores - scores.max(1, keepdims=True))
        share = shifted / shifted.sum(1, keepdims=True)
        losses.append(-np.log(share[range(len(labels)), labels]).mean())
        gradient = (share - np.eye(WIDTHS[-1])[labels]) / len(labels)
        for layer in reversed(range(LAYERS)):
            present = versions[layer][number]
            by_weights = gradient.T @ inputs[layer], gradient.sum(0)
            back = used[layer] if schedule == "pipedream" else present
            if layer:
                gradient = gradient @ back[0] * (1 - inputs[layer] ** 2)
            moved = tuple(
                momentum * v + g for v, g in zip(velocities[layer][number], by_weights, strict=True)
            )
            velocities[layer].append(moved)
            versions[layer].append(tuple(w - lr * v for w, v in zip(present, moved, strict=True)))
    return [history[-1] for history in versions], [history[-1] for history in velocities], losses
