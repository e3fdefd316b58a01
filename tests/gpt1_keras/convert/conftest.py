"""Random checkpoints of Hugging Face's torch model, at the level of the published weights."""

import numpy as np
import pytest
import torch

from tests.helpers.hub_server import running_hub
from tests.helpers.published_checkpoint import NAME, published_level_model, write_published

IDS = np.random.default_rng(0).integers(0, 70, (2, 24))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """For torch, whose threads spin as they wait: beside other work, a step takes 200 times."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_torch_model():
    """A function that makes a torch model of random weights; arguments go to its config."""
    return published_level_model


@pytest.fixture(scope="session")
def loss_of():
    """A function from a torch model and rows of ids to the mean loss of their next tokens."""

    def loss(model, rows):
        outputs = [model(torch.tensor([row])).logits[0, :-1] for row in rows]
        targets = torch.tensor([id for row in rows for id in row[1:]])
        return torch.nn.functional.cross_entropy(torch.cat(outputs), targets)

    return loss


@pytest.fixture(scope="session")
def outputs_of():
    """A function from a model, ours or torch's, to hidden states and logits of `ids`."""

    def outputs(model, ids=IDS):
        if isinstance(model, torch.nn.Module):
            with torch.no_grad():
                result = model(torch.tensor(ids), output_hidden_states=True)
            return result.hidden_states[-1].numpy(), result.logits.numpy()
        states = model.backbone({"token_ids": ids})
        return np.array(states), np.array(model({"token_ids": ids}))

    return outputs


@pytest.fixture(scope="session")
def published(tmp_path_factory, tiny_tokenizer, make_torch_model):
    """A folder in the layout of the published repository, and its torch model."""
    folder = tmp_path_factory.mktemp("published")
    model = make_torch_model(vocab_size=tiny_tokenizer.vocabulary_size() - 3, n_layer=2)
    write_published(folder, tiny_tokenizer, model)
    return folder, model


@pytest.fixture
def hub(published, tmp_path):
    """A hub with that repository, and an empty cache in `tmp_path`."""
    with running_hub(tmp_path / "cache") as hub:
        hub.add_folder(NAME, published[0])
        yield hub
