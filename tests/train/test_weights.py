import pytest
import torch
from torch import nn

from robowm.errors import UserError
from robowm.train.weights import WEIGHTS, load_weights, save_weights


def test_weights_come_back_as_they_were(tmp_path):
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    save_weights(one, tmp_path)
    load_weights(two, tmp_path, "the model")
    assert torch.equal(one.weight, two.weight) and torch.equal(one.bias, two.bias)


@pytest.mark.parametrize("content", [None, b"", b"half"])
def test_missing_and_damaged_files_say_what_to_do(tmp_path, content):
    if content is not None:
        (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(UserError, match=rf"{WEIGHTS} is missing or damaged .* train the model again"):
        load_weights(nn.Linear(3, 2), tmp_path, "the model")


def test_weights_of_another_shape_are_refused(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path)
    with pytest.raises(UserError, match="missing or damaged"):
        load_weights(nn.Linear(4, 2), tmp_path, "the model")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(UserError, match="free some space"):
        save_weights(nn.Linear(3, 2), tmp_path / "absent")
