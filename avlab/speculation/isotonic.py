"""Isotonic regression: the rising curve nearest to some means."""

import numpy as np


def isotonic(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The non-decreasing curves nearest to `means` in weighted squares, along the last axis: [..., N] -> [..., N].

    weights: above 0, like `means`. By the min-max formula (Barlow et al. 1972): at i the largest, over beginnings
    a <= i, of the smallest, over ends b >= i, mean of a..b. N squared numbers, and no loop: N is small here.
    """
    N = means.shape[-1]
    zero = np.zeros((*means.shape[:-1], 1))
    mass = np.concatenate([zero, np.cumsum(weights, axis=-1)], axis=-1)
    moment = np.concatenate([zero, np.cumsum(weights * means, axis=-1)], axis=-1)
    begins, ends = np.arange(N)[:, None], np.arange(N)
    backwards = begins > ends
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (moment[..., None, 1:] - moment[..., :-1, None]) / (mass[..., None, 1:] - mass[..., :-1, None])
    mean = np.where(backwards, np.inf, mean)  # [..., a, b]
    smallest = np.minimum.accumulate(mean[..., ::-1], axis=-1)[..., ::-1]  # over ends b >= i, [..., a, i]
    return np.where(backwards, -np.inf, smallest).max(axis=-2)
