"""Batch normalisation folded away: the same outputs and Jacobians in evaluation."""

import numpy as np
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import bppsa_cupy as bp


def trained(layers, shape, seed=0):
    """A network after passes in training mode, its γ and β random, in evaluation mode."""
    net = bp.Sequential(layers, shape, seed=seed, dtype="float64", device="host")
    rng = np.random.default_rng(seed)
    for _ in range(2):
        net.forward(1 + rng.standard_normal((4, *shape)))
    for name in net.parameters:
        net.parameters[name][...] += 0.3 * rng.standard_normal(net.parameters[name].shape)
    return net.eval()


@settings(max_examples=15)
@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_outputs_are_the_same(bias, affine, masked, seed):
    mask = np.arange(36).reshape(2, 2, 3, 3) % 4 > 0 if masked else None
    inner = [bp.Conv2d(2, 2, 3, padding=1, bias=bias, mask=mask), bp.BatchNorm2d(2, affine=affine), bp.ReLU()]
    layers = [
        bp.BatchNorm2d(1), bp.Conv2d(1, 2, 3, 2, bias=bias), bp.BatchNorm2d(2, affine=affine),
        bp.BatchNorm2d(2), bp.ReLU(),
        bp.Residual([*inner, bp.Residual(inner)], [bp.Conv2d(2, 2, 1), bp.BatchNorm2d(2)]),
        bp.Flatten(), bp.Linear(8, 3, bias), bp.BatchNorm1d(3, affine=affine),
    ]  # fmt: skip
    net = trained(layers, (1, 6, 5), seed)
    before = net.state_dict()
    folded = bp.fold_batch_norm(net)
    kinds = [type(layer).__name__ for layer in folded.layers]
    assert kinds == ["BatchNorm2d", "Conv2d", "ReLU", "Residual", "Flatten", "Linear"]
    x = np.random.default_rng(seed).standard_normal((3, 1, 6, 5))
    np.testing.assert_allclose(folded.forward(x), net.forward(x), rtol=1e-11, atol=1e-11)
    assert not folded.training and folded.masks.keys() == (
        {"3.body.0.weight", "3.body.2.body.0.weight"} if masked else set()
    )
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())


def transposed_jacobian(records, start=""):
    """SciPy's product of records by path, in order, a block's body plus its shortcut, of what lies behind
    `start`; None where nothing does."""
    heads = dict.fromkeys(path[len(start) :].partition(".")[0] for path in records if path.startswith(start))
    result = None
    for head in heads:
        one = records.get(start + head)
        if one is None:
            body, shortcut = (
                transposed_jacobian(records, f"{start}{head}.{b}.") for b in ("body", "shortcut")
            )
            one = body + (scipy.sparse.eye_array(body.shape[0]) if shortcut is None else shortcut)
        result = one if result is None else result @ one
    return result


def differences(net, x):
    """(d_in, d_out) the transposed Jacobian at one sample by central differences."""
    step, rows = 1e-6, np.eye(x.size).reshape(-1, *x.shape)
    ahead, behind = (net.forward(x + sign * step * rows).reshape(x.size, -1).copy() for sign in (1, -1))
    return (ahead - behind) / (2 * step)


def test_jacobians_of_folded_blocks_are_their_bodies_plus_their_shortcuts(rng, tmp_path):
    def normalised(before, channels, stride=1):
        return [bp.Conv2d(before, channels, 3, stride, 1, bias=False), bp.BatchNorm2d(channels)]

    inner = bp.Residual([*normalised(2, 2), bp.Softplus()], [bp.Conv2d(2, 2, 1), bp.BatchNorm2d(2)])
    layers = [
        *normalised(1, 2), bp.Tanh(),
        bp.Residual([*normalised(2, 2), bp.ReLU(), inner, *normalised(2, 2)]), bp.ReLU(),
        bp.Residual([*normalised(2, 4, 2), bp.ReLU(), *normalised(4, 4)], [bp.PadShortcut(4, 2)]), bp.ReLU(),
        bp.AvgPool2d((2, 2)), bp.Flatten(), bp.Linear(4, 3),
    ]  # fmt: skip
    net = trained(layers, (1, 4, 3), 1)
    folded = bp.fold_batch_norm(net)
    assert not folded.buffers
    x = rng.standard_normal((2, 1, 4, 3))
    folded.forward(x)
    bp.save_jacobians(tmp_path / "j.h5", folded)
    loaded = bp.load_jacobians(tmp_path / "j.h5")
    assert "2.body.2.shortcut.0 Conv2d" in [record.label for record in loaded]
    assert not any("BatchNorm" in record.label for record in loaded)
    state = folded.state_dict()
    for sample in range(2):
        records = {record.label.partition(" ")[0]: record.to_scipy(sample) for record in loaded}
        whole = transposed_jacobian(records).toarray()
        np.testing.assert_allclose(whole, differences(net, x[sample]), atol=1e-8)
        at = x[sample]
        for index, layer in enumerate(folded.layers):
            one = bp.Sequential([layer], at.shape, dtype="float64", device="host")
            own = {n: a for n, a in state.items() if n.startswith(f"{index}.")}
            one.load_state_dict({"0" + n[len(str(index)) :]: a for n, a in own.items()})
            if isinstance(layer, bp.Residual):
                inside = {path: matrix for path, matrix in records.items() if path.startswith(f"{index}.")}
                block = transposed_jacobian(inside).toarray()
                np.testing.assert_allclose(block, differences(one, at), atol=1e-8)
            at = one.forward(at[None])[0].copy()
