import torch
from diffusers import DDIMScheduler, DDPMScheduler

from robowm.policy.ddim import clean_from_noise, ddim_scheduler, sample_ddim

LEVELS = {"beta_schedule": "squaredcos_cap_v2", "num_train_timesteps": 100}


def predicted_noise(x, t):
    return 0.3 * x + 0.01 * t[:, None, None]


def test_equals_diffusers_sampling_from_predicted_noise():
    theirs = DDIMScheduler(**LEVELS, prediction_type="epsilon", clip_sample=True)
    theirs.set_timesteps(8)
    noise = torch.randn(3, 16, 5, generator=torch.Generator().manual_seed(0))
    x = noise
    for t in theirs.timesteps:
        x = theirs.step(predicted_noise(x, torch.full((3,), int(t))), t, x).prev_sample

    def x0(x_t, t):
        return clean_from_noise(x_t, predicted_noise(x_t, t), t, theirs.alphas_cumprod)

    torch.testing.assert_close(sample_ddim(x0, noise, ddim_scheduler(theirs, 8)), x, rtol=1e-4, atol=1e-5)


def test_a_perfect_estimate_is_reached():
    target = torch.rand(2, 16, 5) * 2 - 1
    scheduler = ddim_scheduler(DDPMScheduler(**LEVELS), 5)
    torch.testing.assert_close(sample_ddim(lambda x, t: target, torch.randn(2, 16, 5), scheduler), target)


def test_clean_from_noise_undoes_the_forward_process():
    scheduler = DDPMScheduler(**LEVELS)
    clean, noise, t = torch.rand(4, 16, 5) * 2 - 1, torch.randn(4, 16, 5), torch.tensor([0, 20, 50, 80])
    noised = scheduler.add_noise(clean, noise, t)
    torch.testing.assert_close(clean_from_noise(noised, noise, t, scheduler.alphas_cumprod), clean, rtol=0, atol=2e-5)


def test_a_guide_is_told_share_of_the_noise_steps_and_noise_in_the_sample():
    trained, told = DDPMScheduler(**LEVELS), []
    scheduler = ddim_scheduler(trained, 5)

    def guide(x, step, clean):
        told.append((step.level, step.spread))
        assert torch.equal(step.denoise(x), clean)
        return x, clean

    noise = torch.randn(2, 16, 5, generator=torch.Generator().manual_seed(0))
    plain, guided = (sample_ddim(lambda x, t: predicted_noise(x, t).clamp(-1, 1), noise, scheduler, how) for how in (None, guide))
    assert torch.equal(plain, guided)
    for (level, spread), t in zip(told, scheduler.timesteps, strict=True):
        assert level == int(t) / 100 and abs(spread - float((1 - trained.alphas_cumprod[t]).sqrt())) < 1e-6
