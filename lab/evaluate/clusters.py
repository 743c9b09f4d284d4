"""Compare hybrid K-means with K-means without noise, on synthetic data like the paper's.    [H 7, App. E]

Gaussian clusters in [0, 1]^d with equal numbers of users; central and local users are drawn at random. The score is the
paper's WCSS of all users by the final centres, here as a mean per user.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.table import Column, Table

from hatcast.agents.cli.report import Report, nested, open_axes, rounded
from hatcast.agents.tables.terminal import table
from hatcast.lab.evaluate.comparison import MARKERS
from hatcast.lab.evaluate.simulation import Draws, Floats, Integers
from hatcast.stream.hybrid import methods
from hatcast.stream.kmeans.groups import Reports, nearest, tally
from hatcast.stream.kmeans.lloyd import ClusterMeans, Clusters, WeightedMeans, central_means, cluster, iterate, seeds
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.mechanisms import Noisy

TOP: Final = 1_000_000  # steps of a coordinate in [0, 1]
SPREAD: Final = 0.028  # standard deviation of a cluster, in each coordinate    [H 7]
_TRUE_CENTRE_SEEDS: Final = 2**63  # seeds from here on place the clusters; seeds below it place the starting centres


class SimulatedNoise:
    """Reproducible `LaplaceNoise`. It protects nothing."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """Add noise, as `LaplaceNoise` specifies."""
        scale = distance / epsilon
        return Noisy(value + int(self._draws.laplace(np.array([scale]))[0]), scale)


class SimulatedDevices:
    """Reports of all devices at once. tests/statistics/test_kmeans.py compares them with `Devices`."""

    def __init__(self, vectors: Integers, setting: ClusteringSetting, draws: Draws) -> None:
        self._true = vectors
        self._draws = draws
        e = math.exp(setting.local_epsilon)
        self._truth = (e - 1) / (setting.clusters + e - 1)  # otherwise a random cluster, possibly the true one
        scales = np.full(vectors.size, setting.local_scale)
        self.vectors: Integers = vectors + draws.laplace(scales).reshape(vectors.shape)

    def clusters(self, centres: Integers) -> Integers:
        """Return each device's answer, as `Reports` specifies."""
        number = len(self._true)
        truthful = self._draws.uniform(np.full(number, 2**53)) < self._truth * 2**53
        return np.where(truthful, nearest(self._true, centres), self._draws.uniform(np.full(number, len(centres))))


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedUsers:
    """Users of one run. vectors: int64 [n, d]; local: [n] whether a user is a local device."""

    vectors: Integers
    local: NDArray[np.bool_]
    setting: ClusteringSetting
    draws: Draws

    @property
    def central(self) -> Integers:
        """Vectors of the users that trust the operator."""
        return self.vectors[~self.local]

    def reports(self, *, all_users: bool = False) -> Reports:
        """Return the reports of the local users; if `all_users`, of all as if they were local."""
        return SimulatedDevices(self.vectors if all_users else self.vectors[self.local], self.setting, self.draws)

    @property
    def noise(self) -> SimulatedNoise:
        """Noise for the central group."""
        return SimulatedNoise(self.draws)


def non_private(users: SimulatedUsers) -> Clusters:
    """Run K-means without noise, over all users, from the same starting centres."""

    def estimate(centres: Integers) -> WeightedMeans:
        counts, sums = tally(users.vectors, centres)
        means = sums / np.maximum(counts, 1)[:, None]
        return ClusterMeans(counts.astype(np.float64), means, np.zeros(means.shape)), np.ones(means.shape)

    return iterate(estimate, users.setting)


def printed_local(reports: Reports, centres: Integers, setting: ClusteringSetting) -> ClusterMeans:
    """Return the local means as App. E prints them: the mean of all devices that answered k, truthful or not."""
    answers = reports.clusters(centres)
    answered = np.bincount(answers, minlength=setting.clusters).astype(np.float64)
    sums = np.zeros(centres.shape)
    np.add.at(sums, answers, reports.vectors.astype(np.float64))
    floored = np.maximum(answered, 1.0)[:, None]
    return ClusterMeans(answered, sums / floored, np.broadcast_to(2 * setting.local_scale**2 / floored, centres.shape))


def printed_hybrid(users: SimulatedUsers) -> Clusters:
    """Run hybrid K-means as App. E prints it: s_T^2 of line 13 is the variance of the noise on the sum."""
    reports, noise, setting = users.reports(), users.noise, users.setting

    def estimate(centres: Integers) -> WeightedMeans:
        central = central_means(users.central, centres, setting, noise)
        local = printed_local(reports, centres, setting)
        weight = np.array(
            [
                methods.weight(float(each), 2 * setting.central_scale**2, 2 * setting.local_scale**2)
                for each in local.users
            ]
        )[:, None]
        weights = np.broadcast_to(weight, centres.shape)
        means = weights * central.means + (1 - weights) * local.means
        variances = weights**2 * central.variances + (1 - weights) ** 2 * local.variances
        return ClusterMeans(central.users + local.users, means, variances), weights

    return iterate(estimate, setting)


def printed_full_lm(users: SimulatedUsers) -> Clusters:
    """Run K-means as App. E prints it, with all users local."""
    reports = users.reports(all_users=True)
    return iterate(
        lambda centres: (printed_local(reports, centres, users.setting), np.zeros(centres.shape)), users.setting
    )


CONTENDERS: Final[Mapping[str, Callable[[SimulatedUsers], Clusters]]] = MappingProxyType(
    {
        "non_private": non_private,
        "tcm_only": lambda users: cluster(users.central, None, users.setting, users.noise),
        "lm_only": lambda users: cluster(None, users.reports(), users.setting, users.noise),
        "full_lm": lambda users: cluster(None, users.reports(all_users=True), users.setting, users.noise),
        "pwh": lambda users: cluster(users.central, users.reports(), users.setting, users.noise),
        "full_lm:printed": printed_full_lm,
        "pwh:printed": printed_hybrid,
    }
)

Scores = dict[str, dict[int, Floats]]
"""By contender and number of iterations: mean WCSS per user of each run, in units of the cube's edge squared"""


def compare_clusters(
    setting: ClusteringSetting,
    users: int,
    local: float,
    runs: int,
    lengths: Sequence[int],
    progress: Callable[[int], None] = lambda _: None,
) -> Scores:
    """Compare all contenders on the same users, for each number of iterations in `lengths`.

    users   of each cluster, 2 or more
    local   share of users that are local devices
    Each run has clusters, starting centres and draws of its own, so standard errors are over all three: with one set of
    centres they would be about that set. `setting.seed` decides them. `progress` is called after each run.
    """
    draws = Draws(setting.seed)
    scores: dict[str, dict[int, list[float]]] = {name: {each: [] for each in lengths} for name in CONTENDERS}
    for _ in range(runs):
        start = int(draws.uniform(np.array([_TRUE_CENTRE_SEEDS // 2**11]))[0])
        true_centres = seeds(replace(setting, top=TOP, seed=_TRUE_CENTRE_SEEDS + start))
        vectors = _vectors(true_centres, users, draws)
        order = np.argsort(draws.uniform(np.full(len(vectors), 2**53)), kind="stable")
        is_local = np.zeros(len(vectors), np.bool_)
        is_local[order[: min(max(round(local * len(vectors)), 1), len(vectors) - 1)]] = True  # a user of each group
        for length in lengths:
            now = SimulatedUsers(vectors, is_local, replace(setting, top=TOP, iterations=length, seed=start), draws)
            for name, contender in CONTENDERS.items():
                scores[name][length].append(wcss(vectors, contender(now).centres))
        progress(1)
    return {name: {each: np.array(found) for each, found in row.items()} for name, row in scores.items()}


def wcss(vectors: Integers, centres: Integers) -> float:
    """Return the mean squared distance of users to the nearest centre, in units of the cube's edge squared."""
    differences = vectors - centres[nearest(vectors, centres)]
    return float((differences.astype(np.float64) ** 2).sum(axis=1).mean()) / TOP**2


def _vectors(true_centres: Integers, users: int, draws: Draws) -> Integers:
    """Draw vectors [K users, d] around each true centre, clipped to the cube."""
    clusters, dimensions = true_centres.shape
    normal = draws.normal(clusters * users, dimensions)
    drawn = np.repeat(true_centres, users, axis=0) + SPREAD * TOP * normal
    return np.rint(np.clip(drawn, 0, TOP)).astype(np.int64)


def report_of(scores: Scores, title: str, settings: Mapping[str, Any]) -> Report:
    """Return mean and standard error of each contender and number of iterations, a table and a plot."""
    rows = [
        {
            "contender": name,
            "iterations": length,
            "mean": rounded(float(runs.mean()), 6),
            "standard_error": rounded(standard_error(runs), 6),
        }
        for name, row in scores.items()
        for length, runs in row.items()
    ]
    return Report(
        shown=[_table(scores, title)],
        figures={"wcss": nested(rows, "contender", "iterations")},
        settings=settings,
        plot=lambda path: _plot(scores, title, path),
    )


def standard_error(runs: Floats) -> float:
    """Return the standard error of the mean of all runs."""
    return float(runs.std(ddof=1)) / math.sqrt(len(runs))


def _table(scores: Scores, title: str) -> Table:
    """Return a table: a row per contender, a column per number of iterations; the least score with noise in bold."""
    means = {name: [float(runs.mean()) for runs in row.values()] for name, row in scores.items()}
    least = [min(each) for each in zip(*(row for name, row in means.items() if name != "non_private"), strict=True)]
    worst = max(standard_error(runs) / float(runs.mean()) for row in scores.values() for runs in row.values())
    return table(
        title,
        "WCSS per user, in 1/1000 of the cube's edge squared, by number of iterations; standard errors are up "
        f"to {worst:.0%} of it. :printed is as in the paper's pseudocode; see docs/cluster.md.",
        [Column("", no_wrap=True), *map(str, next(iter(scores.values())))],
        (
            (
                name,
                *(
                    f"[bold]{1000 * mean:.2f}[/bold]" if mean == best else f"{1000 * mean:.2f}"
                    for mean, best in zip(row, least, strict=True)
                ),
            )
            for name, row in means.items()
        ),
        min_width=79,  # otherwise title and caption wrap at the width of a few columns
    )


def _plot(scores: Scores, title: str, path: Path) -> None:
    with open_axes(path, title) as axes:
        for (name, row), marker in zip(scores.items(), cycle(MARKERS), strict=False):
            means = [float(runs.mean()) for runs in row.values()]
            style = "--" if name.endswith(":printed") else "-"
            axes.plot([*row], means, style, marker=marker, markersize=4, linewidth=1, label=name)
        axes.set(xlabel="iterations", ylabel="WCSS per user, edges^2", yscale="log")
        axes.set_xticks([*next(iter(scores.values()))])
