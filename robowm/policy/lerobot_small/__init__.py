"""``robowm_diffusion``: lerobot's diffusion policy with parts small enough for a CPU. Importing this package registers it with lerobot
(``--policy.discover_packages_path=robowm.policy.lerobot_small`` on lerobot's command line)."""

from robowm.policy.lerobot_small.configuration_robowm_diffusion import RobowmDiffusionConfig

__all__ = ["RobowmDiffusionConfig"]
