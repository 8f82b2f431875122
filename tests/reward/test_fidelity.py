import pytest
import torch

from robowm.errors import UserError
from robowm.reward.fidelity import WEIGHTS, fidelity_score


def pictures(seed=0):
    return torch.rand(2, 3, 32, 32, 3, generator=torch.Generator().manual_seed(seed)) * 255


def test_closer_is_better_in_every_term_and_cameras_count_alike():
    true = {"external": pictures(0), "wrist": pictures(1)}
    near, far = ({c: t + s * pictures(2) for c, t in true.items()} for s in (0.05, 0.5))
    close, distant = (fidelity_score(shown, true, WEIGHTS) for shown in (near, far))
    assert close.total.shape == (2, 3) and (close.total > distant.total).all()
    assert (close.terms["lpips/wrist"] < distant.terms["lpips/wrist"]).all() and (
        close.terms["psnr/wrist"] > distant.terms["psnr/wrist"]
    ).all()
    by_hand = sum(-close.terms[f"lpips/{c}"] + close.terms[f"ssim/{c}"] + close.terms[f"psnr/{c}"] / 32 for c in true) / 2
    torch.testing.assert_close(close.total, by_hand)


def test_a_metric_left_out_is_not_computed_and_a_misspelt_one_is_named():
    shown = {"external": torch.zeros(1, 1, 16, 16, 3)}  # LPIPS refuses pictures this small
    assert set(fidelity_score(shown, shown, {"psnr": 1.0}).terms) == {"psnr/external"}
    with pytest.raises(UserError, match=r"'lpip'.*lpips"):
        fidelity_score(shown, shown, {"lpip": 1.0})
    with pytest.raises(UserError, match="needs a metric"):
        fidelity_score(shown, shown, {})
