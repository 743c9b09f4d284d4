"""`hatcast evaluate hybrid`: simulated points lie on the lemmas' lines. Fixed seeds."""

import json
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hatcast.agents.cli.report import significant
from hatcast.lab.days import policy_of_recordings
from hatcast.lab.evaluate.hybrid import AXES, Case, curves, heatmaps, parse_estimators, squared_errors
from hatcast.lab.evaluate.inputs import hat_of_recording
from hatcast.lab.evaluate.lemmas import error_of, improvement, improvement_over_the_worse
from hatcast.lab.evaluate.simulation import Draws
from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid import HYBRID_ESTIMATORS
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import FORMATS
from tests.unit import test_evaluate_command

pytestmark = pytest.mark.usefixtures("elsewhere")

evaluate = partial(test_evaluate_command.evaluate, what="hybrid")
PLAIN = Case(10_000, 0.05, 1.0, 0.289, 0.289)
DIFFERING = replace(PLAIN, sigma=0.1, sigma_local=0.3, gap=0.02)


@pytest.mark.parametrize("case", [PLAIN, DIFFERING, replace(PLAIN, users=20, share=0.3, epsilon=0.1)])
def test_simulated_releases_have_the_error_of_the_lemmas(case: Case) -> None:
    """Of every estimator, to 5 standard errors: a false alarm in 10^6, were the seed not fixed."""
    everyone = [*HYBRID_ESTIMATORS.values()]
    for name, squares in squared_errors(case, everyone, 100_000, Draws(5)).items():
        error = float(error_of(HYBRID_ESTIMATORS[name], case.setting))
        off = (float(squares.mean()) - error) / (float(squares.std(ddof=1)) / len(squares) ** 0.5)
        assert abs(off) < 5, name


def test_simulated_points_lie_on_the_theory_lines() -> None:
    found = curves([PLAIN, DIFFERING], parse_estimators("kvh,kvh_heterogeneous,pwh"), 2_000, 1)
    assert len(found) == 2 * 3 * len(AXES)
    for curve in found:
        assert len(curve.points) == 7
        xs, ys, _ = (np.array(each) for each in zip(*curve.line, strict=True))
        for point in curve.points:
            assert abs(point.simulated - point.theory) < 6 * point.standard_error, curve
            # Between two points of the line it is nearly straight, but for the peak where the better baseline changes.
            assert float(np.interp(np.log(point.x), np.log(xs), ys)) == pytest.approx(point.theory, rel=0.01)


def test_separate_means_are_better_than_a_blend_where_the_groups_differ_and_worse_where_they_are_alike() -> None:
    of = {each.name: each for each in parse_estimators("kvh,separate")}
    for gap, best in ((0.0, "kvh"), (0.1, "separate")):
        case = replace(PLAIN, gap=gap)
        errors = {name: float(error_of(each, case.setting)) for name, each in of.items()}
        assert min(errors, key=errors.__getitem__) == best
        simulated = squared_errors(case, [*of.values()], 20_000, Draws(7))
        for name, error in errors.items():
            off = (float(simulated[name].mean()) - error) / (float(simulated[name].std(ddof=1)) / 20_000**0.5)
            assert abs(off) < 5, name


def test_the_sum_of_noises_is_that_of_single_ones() -> None:
    draws, runs, scale = Draws(3), 200_000, 5.0
    summed = draws.laplace_sum(scale, 4, runs)
    singly = np.sum([draws.laplace(np.full(runs, scale)) for _ in range(4)], axis=0)
    p = np.exp(-1 / scale)
    for each in (summed, singly):
        assert float((each**2).mean()) == pytest.approx(4 * 2 * p / (1 - p) ** 2, rel=0.02)  # 5 standard errors
        assert abs(float(each.mean())) < 5 * float(each.std()) / runs**0.5


def test_json_has_what_the_lemmas_say_and_what_was_simulated(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    done = evaluate("--json", "--runs", 200, "--sigma", "0.289", "--estimators", "kvh,pwh", "--plot", out)
    assert done.stderr.strip() == "a simulation: nothing that it prints is private"
    found = json.loads(done.stdout)
    assert set(found) == {"settings", "improvement", "heatmap", "amplification"}
    assert found["settings"]["users"] == 10_000
    assert set(found["improvement"]) == {"users", "share", "epsilon"}
    for axis, rows in found["improvement"].items():
        assert set(rows) == {"kvh", "pwh"}
        for point in rows["kvh"]["0.289"]:
            assert set(point) == {axis, "theory", "over_worse", "simulated", "standard_error"}
            assert 1 <= point["theory"] < 2.2857
        assert all(point["over_worse"] >= 1 for point in rows["pwh"]["0.289"])
    assert set(found["amplification"]) == {"0", "0.1", "0.5", "0.9"}
    assert all(epsilon <= 1 for row in found["amplification"].values() for _, epsilon in row)
    text = "".join(ET.parse(out).getroot().itertext())
    assert "kvh, sigma 0.289 U" in text
    assert "relative improvement R" in text
    assert "r, over the worse baseline" in text
    assert "R of pwh," in text


def test_the_heatmap_has_the_papers_ranges_and_the_improvement_of_the_lemmas() -> None:
    case = replace(PLAIN, users=2_000)
    for each, heatmap in zip(parse_estimators("kvh,pwh"), heatmaps(case, parse_estimators("kvh,pwh")), strict=True):
        ends = [float(axis[at]) for axis in (heatmap.shares, heatmap.epsilons) for at in (0, -1)]
        assert ends == pytest.approx([0.001, 0.1, 0.1, 10])
        row, column = 10, 30
        here = replace(case, share=float(heatmap.shares[column]), epsilon=float(heatmap.epsilons[row])).setting
        assert heatmap.improvements[row, column] == float(improvement(error_of(each, here), here))
        assert not np.isnan(heatmap.improvements).any()
    few = heatmaps(replace(PLAIN, users=100), parse_estimators("kvh"))[0]
    assert np.isnan(few.improvements[:, few.shares < 0.01]).all(), "no central user"


def test_lines_have_the_improvement_over_the_worse_baseline() -> None:
    for curve in curves([PLAIN], parse_estimators("kvh"), 2, 1):
        xs, better, worse = (np.array(each) for each in zip(*curve.line, strict=True))
        assert (worse >= better).all()
        for point in curve.points:
            assert float(np.interp(np.log(point.x), np.log(xs), np.log(worse))) == pytest.approx(
                np.log(point.over_worse), abs=0.02
            )


def test_the_table_has_both_ratios() -> None:
    done = evaluate("--runs", 20, "--sigma", "0.289", "--estimators", "kvh")
    rows = [line for line in done.stdout.splitlines() if "kvh, 0.289" in line]
    assert ["r of kvh" in line for line in rows] == [False, True] * len(AXES)
    assert "2.247" in rows[1], "at 10,000 users"


def test_the_same_seed_simulates_the_same() -> None:
    one, again, other = (curves([PLAIN], parse_estimators("pwh"), 20, seed) for seed in (3, 3, 4))
    assert one == again != other


def test_the_table_says_how_far_simulation_and_lemmas_are_apart() -> None:
    done = evaluate("--runs", 50, "--users", 500, "--share", 0.1, "--eps", 0.5, "--sigma", "0.2")
    assert "hybrid model: 500 users, 0.1 of them central, eps 0.5" in " ".join(done.stdout.split())
    assert "of their standard errors away" in " ".join(done.stdout.split())
    assert "kvh, 0.2" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--users", 2, "--share", 0.5, "--estimators", "full_lm"],
        ["--users", 10**6, "--share", 1e-5, "--eps", 0.001],  # nobody central along the axis of users
        ["--eps", 1000, "--sigma", "0,0.5"],
    ],
)
def test_the_ends_of_what_may_be_asked_for_are_shown(arguments: list[object], tmp_path: Path) -> None:
    done = evaluate("--runs", 20, "--plot", tmp_path / "out.svg", *arguments)
    assert done.exit_code == 0
    assert " ".join(done.stdout.split()).count("relative improvement R") == len(AXES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--estimators", "baseline"], "not an estimator of the hybrid model"),
        (["--sigma", "0.6"], "--sigma"),
        (["--sigma", "wide"], "--sigma"),
        (["--sigma", "0.4", "--gap", "0.3"], "would leave"),
        (["--users", "10", "--share", "0.01"], "without users"),
    ],
)
def test_settings_that_are_none_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(HatcastError, match=words) as refused:
        evaluate(*arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--eps", "0.5,1"],
        ["--eps", 0],
        ["--share", 0],
        ["--share", "nan"],
        ["--runs", 1_000_001],
    ],
)
def test_numbers_out_of_range_are_wrong_usage(arguments: list[object]) -> None:
    assert evaluate(*arguments).exit_code == 2


def test_the_simulations_grid_and_noise_are_fit_for_the_mechanism_that_ships() -> None:
    """U in 10^9 steps, at the least epsilon: the system's own noise takes it too."""
    assert SystemNoise().laplace(0, Grid(Decimal("0.000001")).floor(1_000_000), 0.1).scale == 1e10


def at_80_columns(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("TERM", "dumb")):  # a terminal without colours
        monkeypatch.setenv(name, value)
    return evaluate("--runs", 20, *arguments).stdout


def test_80_columns_have_the_estimators_names_also_where_ratios_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["kvh_heterogeneous", "pwh"]
    shown = at_80_columns(monkeypatch, "--eps", 100, "--estimators", ",".join(names), "--gap", 0.01, "--sigma", 0.4)
    for name in names:
        assert shown.count(name) == 2 * len(AXES)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown


def test_small_ratios_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = at_80_columns(monkeypatch, "--eps", 100, "--estimators", "pwh", "--sigma", 0.4)
    error = error_of(HYBRID_ESTIMATORS["pwh"], (case := Case(100_000, 0.05, 100.0, 0.4, 0.4)).setting)
    assert significant(float(improvement(error, case.setting))) in shown.split()
    assert "0.000" not in shown.split()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.00012345, "1.2e-04"),
        (0.0012345, "0.00123"),
        (0.98765, "0.988"),
        (1.0, "1.000"),
        (1234.5, "1234"),
        (20_790.4, "20790"),
        (12_345_678.0, "1.2e+07"),
    ],
)
def test_a_ratio_takes_seven_places_at_most(number: float, text: str) -> None:
    assert significant(number) == text
    assert len(text) <= 7


def test_a_heatmap_has_the_improvement_over_the_worse_baseline_too() -> None:
    case = replace(PLAIN, users=252_540, sigma=0.0227)
    (found,) = heatmaps(case, parse_estimators("pwh"))
    setting = replace(case, share=float(found.shares[7]), epsilon=float(found.epsilons[40])).setting
    error = error_of(HYBRID_ESTIMATORS["pwh"], setting)
    assert found.over_worse[40, 7] == float(improvement_over_the_worse(error, setting))
    assert (found.over_worse >= found.improvements).all()


ROOT = Path(__file__).parents[2]
AUSTIN: Final = ("--data", ROOT / "tests/data/capmetro/2017-03-21.csv.gz", "--format", "capmetro")


def test_an_own_recording_gives_sigma_and_the_ratios_of_every_estimator(tmp_path: Path) -> None:
    done = evaluate(*AUSTIN, "--share", 0.2, "--runs", 20, "--json")
    assert done.stderr.splitlines()[0] == "reads raw data; nothing that it prints is private"
    found = json.loads(done.stdout)["recording"]
    policy = policy_of_recordings(None, "capmetro")
    hat, name = hat_of_recording(([AUSTIN[1]], FORMATS["capmetro"], policy), None, None, lambda _: None)
    means = hat.means(Draws(1), 1)[0] / 65_000
    assert found["name"] == name
    assert (found["users"], found["central"], found["local"]) == (156, 31, 125) == (len(means), 31, len(means) - 31)
    assert found["sigma"] == pytest.approx(means.std(), rel=1e-5)
    setting = Case(156, 31 / 156, 1.0, float(means.std()), float(means.std())).setting
    text = (ROOT / "docs" / "hybrid.md").read_text()
    for each, estimator in HYBRID_ESTIMATORS.items():
        better = float(improvement(error_of(estimator, setting), setting))
        assert found["improvement"][each] == pytest.approx(better, rel=1e-5)
        assert f"| `{each}` | {significant(better)} | {significant(found['over_worse'][each])} |" in text
    assert f"T = 31 and L = 125, sigma {found['sigma']:.4f} U:" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*AUSTIN, "--sigma", "0.2"], "--sigma cannot be combined with --data, which measures it"),
        ([*AUSTIN, "--users", 100], "--users cannot be combined with --data, which measures it"),
        (["--hat", "a/b/c"], "--config and --hat are for --data"),
    ],
)
def test_what_a_recording_measures_cannot_be_given(arguments: list[object], words: str) -> None:
    done = evaluate(*arguments)
    assert (done.exit_code, words in " ".join(done.stderr.split())) == (2, True)
