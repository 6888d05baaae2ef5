"""`convert` on models of the shapes that PyTorch's examples have."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from marks import some
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch_cases import assert_same, flat, gradients

import bppsa_cupy.torch as ours
from bppsa_cupy.torch.modules import OverTime


class LanguageModel(torch.nn.Module):
    """examples/word_language_model: embedding, an LSTM of two layers whose state goes from batch
    to batch, and a decoder that shares the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Embedding(11, 6)
        self.rnn = torch.nn.LSTM(6, 6, 2)
        self.decoder = torch.nn.Linear(6, 11)
        self.decoder.weight = self.encoder.weight

    def forward(self, words: torch.Tensor, hidden: Any = None) -> tuple[torch.Tensor, Any]:
        output, hidden = self.rnn(self.encoder(words), hidden)
        return self.decoder(output).log_softmax(-1), hidden

    def loss(self, words: torch.Tensor) -> torch.Tensor:
        first, hidden = self(words[:6])
        second, _ = self(words[6:], tuple(state.detach() for state in hidden))
        scores = torch.cat([first, second])[:-1]
        return torch.nn.functional.nll_loss(scores.flatten(0, 1), words[1:].flatten())


class Translator(torch.nn.Module):
    """The tutorial's seq2seq: a bidirectional GRU over packed sentences, and one that writes word by word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 5)
        self.encoder = torch.nn.GRU(5, 4, batch_first=True, bidirectional=True)
        self.bridge = torch.nn.Linear(8, 7)
        self.decoder = torch.nn.ModuleDict({"cell": torch.nn.GRU(5, 7, batch_first=True)})
        self.attention = torch.nn.Linear(8, 7)
        self.out = torch.nn.Linear(14, 11)

    def loss(self, words: torch.Tensor) -> torch.Tensor:
        words = words.T
        lengths = torch.arange(words.shape[0]) + 4
        pack = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        encoded, state = self.encoder(pack)
        keys = self.attention(pad_packed_sequence(encoded, batch_first=True)[0])
        hidden = self.bridge(torch.cat([state[0], state[1]], -1))[None]
        loss = torch.zeros((), dtype=keys.dtype)
        for step in range(5):
            y, hidden = self.decoder["cell"](self.embedding(words[:, step : step + 1]), hidden)
            context = (y @ keys.mT).softmax(-1) @ keys
            scores = self.out(torch.cat([y, context], -1))[:, 0]
            loss = loss + torch.nn.functional.cross_entropy(scores, words[:, step + 1])
        return loss


@pytest.mark.parametrize("dtype", some(torch.float64, long=[torch.float32]), ids=str)
@pytest.mark.parametrize("cls", [LanguageModel, Translator])
def test_losses_and_gradients_stay_what_they_were(cls: type[Any], dtype: torch.dtype) -> None:
    model = cls().to(dtype)
    words = torch.randint(11, (10, 3))
    parameters = list(model.parameters())
    results = []
    for change in (lambda m: m, ours.convert, ours.revert):
        assert change(model) is model
        loss = model.loss(words)
        results.append([loss.detach(), *torch.autograd.grad(loss, parameters)])
    expected, converted, again = results
    assert_same(converted, expected)
    assert all(map(torch.equal, again, expected))
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


def test_modules_stay_the_objects_they_are() -> None:
    model, x = LanguageModel().double(), torch.randint(11, (10, 3))
    rnn, seen = model.rnn, []
    rnn.register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ours.convert(model)
    assert model.rnn is rnn and type(rnn) is ours.LSTM
    before = rnn.weight_hh_l0.detach().clone()
    model.loss(x).backward()
    optimizer.step()
    assert seen == [ours.LSTM, ours.LSTM] and not torch.equal(rnn.weight_hh_l0, before)
    assert model.state_dict().keys() == LanguageModel().state_dict().keys()
    assert type(ours.revert(model).rnn) is torch.nn.LSTM


def test_the_root_itself_and_every_kind_of_it() -> None:
    for theirs, module in ((torch.nn.RNN, ours.RNN), (torch.nn.GRU, ours.GRU), (torch.nn.LSTM, ours.LSTM)):
        model = theirs(3, 4)
        assert type(ours.convert(ours.convert(model))) is module
        assert type(ours.revert(ours.revert(model))) is theirs
    relu = torch.nn.RNN(3, 4, nonlinearity="relu").double()
    x = torch.randn(5, 2, 3).double()
    expected = relu(x)[0]
    assert (ours.convert(relu)(x)[0] - expected).abs().max() < 1e-14


class Unchanged(torch.nn.GRU):
    """A subclass as libraries have it: its own constructor, and torch.nn's forward."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 4, batch_first=True)
        self.label = "encoder"

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.3)


class Doubling(torch.nn.GRU):
    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(2 * input, hx)


def norm(module: torch.nn.Module, name: str = "weight_norm") -> Any:
    return getattr(parametrizations, name)(module, "weight_hh_l0")


CONVERTED = {
    "weight norm": lambda: norm(torch.nn.GRU(3, 4)),
    "spectral norm": lambda: norm(torch.nn.LSTM(3, 4), "spectral_norm").eval(),
    "orthogonal": lambda: norm(torch.nn.RNN(3, 4), "orthogonal"),
    "subclass": lambda: Unchanged(3),
    "weight norm of a subclass": lambda: norm(Unchanged(3)),
}


@pytest.mark.parametrize("make", CONVERTED.values(), ids=CONVERTED)
def test_parametrizations_and_subclasses_are_converted(make: Any) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(make()).double())
    (theirs, model), x = models, torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    kind, names = type(theirs[0]), list(theirs.state_dict())
    for _ in range(2):
        ours.convert(model)
        assert isinstance(model[0], OverTime) and list(model.state_dict()) == names
        outputs = [flat(each(x)) for each in models]
        assert_same(*outputs)
        assert_same(*(gradients(each, y, x) for each, y in zip(models, outputs, strict=True)))
    assert [row.converted for row in ours.report(model)] == [True]
    if isinstance(theirs[0], Unchanged) and not is_parametrized(theirs[0]):
        for copied in (copy.deepcopy(model[0]), pickle.loads(pickle.dumps(model[0]))):
            assert isinstance(copied, Unchanged) and type(copied) is type(model[0])
            assert copied.label == "encoder" and torch.equal(copied(x)[0], model[0](x)[0])
    ours.revert(model)
    assert not isinstance(model[0], OverTime) and type(model[0]).__name__ == kind.__name__
    if is_parametrized(model[0]):
        remove_parametrizations(ours.convert(model)[0], "weight_hh_l0")
        theirs_again = ours.revert(model)[0]
        assert type(theirs_again) is kind.__bases__[0]
    assert_same(flat(model(x)), outputs[0])


def test_what_stays_pytorchs_is_reported() -> None:
    layers = [torch.nn.GRU(3, 4), torch.nn.LSTM(3, 4, proj_size=2), Doubling(3, 4), torch.nn.GRUCell(3, 4)]
    model = torch.nn.ModuleList(layers)
    assert not any(row.converted for row in ours.report(model))
    assert ours.convert(model) is model
    assert [type(module) for module in model] == [ours.GRU, torch.nn.LSTM, Doubling, torch.nn.GRUCell]
    assert [row.converted for row in ours.report(model)] == [True, False, False, False]
