"""Numbers of a config that make no sense whatever they are used for, refused by name before anything heavy begins."""

from __future__ import annotations

from typing import Any

from robowm.errors import UserError

FROM_1 = """
steps batch_size batch log_every save_every max_steps n workers image_size width rows consecutive episodes until_successes max_tries
sampling_steps infer_width ddim_steps candidates reuse encoder_width encoder_features denoiser_width denoiser_blocks condition patch context
chunk chunk_size n_action_steps num_steps
"""
FROM_0 = "seed train_seed first_seed noise_salt stop_after_success round min_steps strips failure_videos success_videos"
LEAST = {**dict.fromkeys(FROM_1.split(), 1), **dict.fromkeys(FROM_0.split(), 0)}  # of whole numbers, by the last word of their key
NOT_NEGATIVE = (
    "context_noise",
    "state_noise",
    "state_weight",
    "perceptual_weight",
    "reward_noise",
    "share",
    "start_range",
    "temperature",
    "noise",
)  # 0 or more
DEFERRED = ("stages", "final")  # of the flywheel: each stage checks its own when it is composed
SHARES = ("noisiest", "pure_noise", "cold_start", "own_levels", "target_precision")  # in [0, 1]


def check_numbers(node: Any, path: str = "") -> None:
    """Raise UserError for the first number under ``node`` that is no count, too small, or no share; None always passes."""
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key in DEFERRED:
            continue
        where = f"{path}{key}"
        if key in LEAST and value is not None and not isinstance(value, dict | list):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or value < LEAST[key]:
                raise UserError(f"{where}={value}; it must be a whole number of at least {LEAST[key]}")
        elif key in SHARES and isinstance(value, int | float) and not 0 <= value <= 1:
            raise UserError(f"{where}={value}; it must lie between 0 and 1")
        elif key in NOT_NEGATIVE and isinstance(value, int | float) and not value >= 0:
            raise UserError(f"{where}={value}; it must be 0 or more")
        else:
            check_numbers(value, f"{where}.")
