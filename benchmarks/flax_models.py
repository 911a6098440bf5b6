"""The models of models.py in Flax, with its layers as they come."""

from __future__ import annotations

from flax import linen


class MLP(linen.Module):
    """Dense layers with relu between them."""

    widths: tuple[int, ...]

    @linen.compact
    def __call__(self, x, training):
        """Return logits."""
        for width in self.widths[:-1]:
            x = linen.relu(linen.Dense(width)(x))
        return linen.Dense(self.widths[-1])(x)


class CNN(linen.Module):
    """Convolutions of 3 by 3, each with relu and a maximum over 2 by 2."""

    channels: tuple[int, ...]

    @linen.compact
    def __call__(self, x, training):
        """Return logits."""
        for channels in self.channels:
            x = linen.relu(linen.Conv(channels, (3, 3))(x))
            x = linen.max_pool(x, (2, 2), (2, 2))
        return linen.Dense(10)(x.reshape(x.shape[0], -1))


class Transformer(linen.Module):
    """Blocks of attention and two dense layers, normalised before."""

    depth: int
    width: int
    heads: int

    @linen.compact
    def __call__(self, x, training):
        """Return logits."""
        for _ in range(self.depth):
            h = linen.LayerNorm()(x)
            x = x + linen.MultiHeadDotProductAttention(self.heads, use_bias=False)(h, h)
            h = linen.Dense(4 * self.width)(linen.LayerNorm()(x))
            x = x + linen.Dense(self.width)(linen.gelu(h))
        return linen.Dense(10)(linen.LayerNorm()(x))


class ResNet18(linen.Module):
    """He et al. 2015, for small images: a first convolution of 3 by 3, no pool after it."""

    @linen.compact
    def __call__(self, x, training):
        """Return logits."""

        def conv(x, channels, size=3, stride=1, relu=True):
            x = linen.Conv(channels, (size, size), stride, use_bias=False)(x)
            x = linen.BatchNorm(use_running_average=not training)(x)
            return linen.relu(x) if relu else x

        x = conv(x, 64)
        for stage, channels in enumerate((64, 128, 256, 512)):
            for block in range(2):
                stride = 2 if stage and not block else 1
                shortcut = conv(x, channels, 1, stride, relu=False) if stride == 2 else x
                main = conv(conv(x, channels, stride=stride), channels, relu=False)
                x = linen.relu(main + shortcut)
        return linen.Dense(10)(x.mean((1, 2)))
