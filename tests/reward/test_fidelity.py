import math

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


def test_object_and_gripper_count_where_they_are_seen():
    true = {"external": pictures(0), "wrist": pictures(1)}
    shown = {c: t.clone() for c, t in true.items()}
    for frames in shown.values():
        frames[:, :, :8] += 40  # the gripper is wrong, the object is not
    masks = {f"{c}_mask": torch.zeros(2, 3, 32, 32, 3, dtype=torch.uint8) for c in true}
    masks["external_mask"][:, :, :8, :, 0] = masks["wrist_mask"][:, :, :8, :, 0] = 255
    masks["external_mask"][:, :2, 8:16, :, 1] = 255  # the wrist camera never sees the object, the external one not in the last frame
    found = fidelity_score(shown, {**true, **masks}, {"psnr_object": 2.0, "psnr_gripper": 1.0})
    assert set(found.terms) == {f"{m}/{c}" for m in ("psnr_object", "psnr_gripper") for c in true}
    assert found.terms["psnr_object/wrist"].isnan().all() and found.terms["psnr_object/external"][:, 2].isnan().all()
    gripper, perfect = 20 * math.log10(255 / 40), 10 * math.log10(255**2 * 12)
    torch.testing.assert_close(found.terms["psnr_gripper/wrist"], torch.full((2, 3), gripper), atol=1e-3, rtol=0)
    total = torch.tensor([[2 * perfect + gripper, 2 * perfect + gripper, gripper]] * 2)
    torch.testing.assert_close(found.total, total, atol=1e-2, rtol=0)
    alone = fidelity_score(shown, true, {"psnr": 1.0})
    both = fidelity_score(shown, {**true, **masks}, {"psnr": 1.0, "psnr_gripper": 0.5})
    torch.testing.assert_close(both.total, alone.total + gripper / 2, atol=1e-3, rtol=0)
