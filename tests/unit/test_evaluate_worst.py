"""`hatcast evaluate worst-case`: against `worst_case_error`, the papers' formula and their figures."""

import json
import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hatcast.lab.evaluate.worst import staircases
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.vectors import worst_case_error
from tests.invoked import run
from tests.services.data import DATA
from tests.support import ITMS_LIKE, UPPER_BOUND, as_counts

COUNTS = DATA / "itms_like_counts.json"
ITMS = as_counts(ITMS_LIKE)


evaluate = partial(run, "evaluate", "worst-case", "--counts", COUNTS)


def test_json_has_bias_noise_length_arrays_and_tau_of_every_estimator() -> None:
    found = json.loads(evaluate("--json", "--eps", "0.1,1").stdout)
    assert found["settings"]["users"] == 217
    for name in ("baseline", "array_averaging", "opt_array_averaging", "clipped_sum", "weighted_mean"):
        for epsilon in (0.1, 1.0):
            error = worst_case_error(ESTIMATORS[name], ITMS, UPPER_BOUND, epsilon)
            assert error is not None
            row = found["worst_case"][name][f"{epsilon:g}"]
            expected = [float(each) / 1000 for each in (error.bias, error.noise, error.total)]
            assert [row["bias"], row["noise"], row["worst_case_error"]] == pytest.approx(expected, abs=1e-4)
    averaging = found["worst_case"]["opt_array_averaging"]["1"]
    assert (averaging["array_length"], averaging["arrays"], averaging["tau"]) == (409, 42, None)
    levy = found["worst_case"]["levy"]["1"]
    tau = 65 * math.sqrt(math.log(2 * 164 / 0.2) / (2 * 50))
    assert (levy["array_length"], levy["arrays"], levy["worst_case_error"]) == (50, 164, None)
    assert levy["tau"] == pytest.approx(tau, abs=1e-4)
    ratio = found["worst_case"]["capped_ratio"]["1"]
    assert (ratio["array_length"], ratio["bias"], ratio["noise"]) == (46, 21.8266, None)


def test_full_arrays_have_the_least_error_of_the_papers_formula() -> None:
    found = json.loads(evaluate("--json", "--eps", "0.1,1", "--estimators", "baseline").stdout)["full_arrays"]
    for epsilon in (0.1, 1.0):
        errors = {
            m: 65 * (1 - sum(np.minimum(ITMS, m)) / 17_166) + 65 * m / (epsilon * sum(np.minimum(ITMS, m)))
            for m in range(1, 418)
        }
        least = min(errors, key=lambda m: (errors[m], m))
        row = found[f"{epsilon:g}"]
        assert (row["array_length"], row["worst_case_error"]) == (least, pytest.approx(errors[least], abs=1e-4))


def test_the_papers_constants_double_the_noise_of_wraparound() -> None:
    names = "array_averaging:wraparound,array_averaging:wraparound:printed"
    found = json.loads(evaluate("--json", "--eps", 1, "--estimators", names).stdout)["worst_case"]
    own, printed = (found[name]["1"] for name in names.split(","))
    assert printed["noise"] == pytest.approx(2 * own["noise"], abs=1e-4)
    assert printed["bias"] == own["bias"]


def test_array_lengths_rise_with_epsilon_as_in_the_papers_figure_and_are_those_of_the_rules() -> None:
    for rule, (epsilons, lengths) in staircases(ITMS).items():
        assert (epsilons[0], epsilons[-1]) == (pytest.approx(0.001), pytest.approx(2))
        assert all(one <= other for one, other in pairwise(lengths.tolist())), rule
        for at in (0, 200, 399):
            assert lengths[at] == RULES[rule](ITMS, float(epsilons[at]), "bestfit")


def test_the_table_names_what_no_count_fixes_with_a_dash() -> None:
    done = evaluate("--eps", 1, "--estimators", "baseline,levy,capped_ratio:46")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert rows["baseline"] == ["1", "-", "-", "-", "0.000", "1.579", "1.579"]
    assert rows["levy"] == ["1", "50", "164", "17.685", "-", "-", "-"]
    assert rows["capped_ratio:46"] == ["(add_remove)", "1", "46", "-", "-", "21.827", "-", "-"]
    assert rows["full"] == ["arrays", "1", "417", "41.17", "-", "0.000", "1.579", "1.579"]
    assert "nothing that it prints is private" in done.stderr


def test_the_plot_has_both_figures_of_the_papers(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    evaluate("--eps", "0.5,1", "--runs", 20, "--plot", out)
    text = "".join(ET.parse(out).getroot().itertext())
    for each in (
        "worst-case error E_M",
        "array length m",
        "minimax",
        "worst_case",
        "bestfit",
        "wraparound:printed",
        "levy",
    ):
        assert each in text
    evaluate("--dimensions", 2, "--eps", "1", "--plot", out)
    text = "".join(ET.parse(out).getroot().itertext())
    assert "array length m" in text
    assert "wraparound" not in text, "LEVY and QUANTILE have no vector form"


def test_worst_cases_of_vectors_are_those_of_their_form() -> None:
    found = json.loads(evaluate("--dimensions", 3, "--eps", 1, "--json").stdout)["worst_case"]
    baseline = found["baseline"]["1"]
    assert baseline["noise"] == pytest.approx(3 * 130 * 417 / 17_166, abs=1e-4)
    assert found["opt_array_averaging"]["1"]["bias"] == 0.225
