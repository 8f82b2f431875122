"""A residual network over vectors, for latent dynamics and critics."""

from __future__ import annotations

from torch import Tensor, nn

from robowm.nn.blocks import zeroed


class ResidualMlp(nn.Module):
    """f32 [..., in] -> [..., out]; the last layer starts at zero, so a fresh network says 0."""

    def __init__(self, size: int, out: int, width: int, depth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(size, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.last = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), zeroed(nn.Linear(width, out)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's value."""
        hidden = self.first(x)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.last(hidden)
