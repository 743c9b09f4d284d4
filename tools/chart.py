"""`python -m tools.chart [--render VALUES]`: check the Helm chart, or print its objects as JSON.

The chart is linted and rendered with each file of values in `examples/helm`, by Helm's own library. Every object is
compared with Kubernetes' JSON schemas, of the oldest and the newest version, in which an unknown field is an error.
Objects of Strimzi, KEDA and the Prometheus Operator are compared with the schemas in `tools/crds`, and the rights of
Kafka's users with those that `hatcast acls` prints.
"""

import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart_grants import grant_problems
from tools.helm import HelmAbsent, HelmError, lint, template

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "ops" / "helm" / "hatcast"
EXAMPLES: Final = ROOT / "examples" / "helm"
SCHEMAS: Final = Path(__file__).parent / "crds"
VERSIONS: Final = ("1.27", "1.37")  # the oldest by kubeVersion of Chart.yaml, and the newest that there is
REJECTED: Final = 1
ABSENT: Final = 3
_HOOK: Final = '"helm.sh/hook" "test" '  # rendering leaves hooks out
_NOTES: Final = (
    'apiVersion: v1\nkind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n'
)

Object = dict[str, Any]


@contextmanager
def _prepared(values: Path) -> Iterator[Path]:
    """Make a copy of the chart whose own values are these, and in which the test and the notes are objects too."""
    with tempfile.TemporaryDirectory(prefix="hatcast-chart-") as folder:
        copy = Path(folder) / CHART.name
        shutil.copytree(CHART, copy)  # follows links, as `helm package` does
        both = merged(yaml.safe_load((CHART / "values.yaml").read_text()), yaml.safe_load(values.read_text()))
        (copy / "values.yaml").write_text(yaml.safe_dump(both))
        doctor = copy / "templates" / "tests" / "doctor.yaml"
        doctor.write_text(doctor.read_text().replace(_HOOK, ""))
        (copy / "templates" / "NOTES.txt").rename(copy / "NOTES.txt")
        (copy / "templates" / "notes.yaml").write_text(_NOTES)
        yield copy


def merged(below: Object, above: Object) -> Object:
    """Return the values with those above in place of those below, table by table, as Helm merges them."""
    both = {key: merged(below[key], above[key]) for key in below if _is_table(below[key]) and _is_table(above.get(key))}
    return below | above | both


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def render(values: Path) -> list[Object]:
    """Lint and render the chart with a file of values. Raises HelmError, HelmAbsent."""
    with _prepared(values) as chart:
        rendered = template(chart)  # first: its errors are those of `helm install`
        lint(chart)
        return [made for made in yaml.load_all(rendered, yaml.CSafeLoader) if made is not None]


def problems(made: Object) -> Iterator[str]:
    """Yield what Kubernetes, or the operator of a custom resource, would reject."""
    if made["kind"] == "Notes":
        return
    name = f"{made['kind']} {made['metadata']['name']}"
    custom = SCHEMAS / f"{made['apiVersion'].replace('/', '_')}_{made['kind']}.json"
    if custom.is_file():
        import jsonschema  # noqa: PLC0415 - late, since --render does without

        for error in jsonschema.Draft202012Validator(json.loads(custom.read_text())).iter_errors(made):
            yield f"{name}: {error.json_path}: {error.message}"
        return
    for version in VERSIONS:
        yield from (f"{name}, Kubernetes {version}: {problem}" for problem in _core_problems(made, version))


def _core_problems(made: Object, version: str) -> Iterator[str]:
    import kubernetes_validate  # noqa: PLC0415 - as above

    try:
        kubernetes_validate.validate(made, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


@functools.cache
def examples() -> list[Path]:
    """Return the files of values that are checked."""
    return sorted(EXAMPLES.glob("*.yaml"))


def check() -> list[str]:
    """Return what is wrong with the chart, a line each. Raises HelmAbsent."""
    found = []
    for values in examples():
        try:
            made = render(values)
            found += [f"{values.name}: {problem}" for each in made for problem in problems(each)]
            with tempfile.TemporaryDirectory(prefix="hatcast-chart-") as folder:
                found += [f"{values.name}: {problem}" for problem in grant_problems(made, Path(folder))]
        except (HelmError, yaml.YAMLError) as error:
            found.append(f"{values.name}: {error}")
    return found


def main(arguments: list[str]) -> int:
    """Run the command of the module's docstring. Exit code 1: rejected; 3: Helm is absent."""
    try:
        if arguments[:1] == ["--render"]:
            sys.stdout.write(json.dumps(render(Path(arguments[1]))))
            return 0
        found = check()
    except HelmError as error:
        found = [str(error)]
    except HelmAbsent as error:
        sys.stderr.write(f"{error}\n")
        return ABSENT
    sys.stdout.writelines(f"{line}\n" for line in found)
    return REJECTED if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
