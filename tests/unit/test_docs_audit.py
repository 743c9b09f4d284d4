"""docs/audit.md: its table has every part of every shipped policy, with the claim of the policy's file."""

import re

from hatcast.lab.audit.run import HEADINGS, Subject, short
from tests.auditing import CLUSTERED, ROOT, SHIPPED

PAGE = (ROOT / "docs" / "audit.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.splitlines()
    if line.startswith("| `") and line.count("|") == len(HEADINGS) + 1
]


def claims_of(subject: Subject) -> list[tuple[str, str, str]]:
    """File, part and claim of each part of a policy, in the order of the table."""
    name = f"`{short(subject.path.relative_to(ROOT))}`"
    return [
        (name, part.name, f"{part.claim.epsilon:g}" + (f", {part.claim.delta:g}" if part.claim.delta else ""))
        for part in subject.parts()
    ]


def test_the_table_has_every_part_of_every_shipped_policy_with_its_claim() -> None:
    subjects = [*map(Subject, SHIPPED), Subject(CLUSTERED, clusterings=True)]
    assert [row[:3] for row in ROWS] == [claims for subject in subjects for claims in claims_of(subject)]
    assert "| " + " | ".join(HEADINGS) + " |" in PAGE


def test_every_claim_in_the_table_holds_with_its_margin() -> None:
    sampled = 0
    for *_, claim, loss, _, bound, margin, verdict in ROWS:
        epsilon = float(claim.partition(",")[0])
        assert verdict == "no violation found"
        assert loss == "-" or float(loss) <= epsilon + 5e-4
        if bound != "-":
            sampled += 1
            assert abs(float(bound) + float(margin) - epsilon) < 2e-3
    assert sampled > 20


def test_the_nightly_script_audits_the_same_files() -> None:
    script = (ROOT / "scripts" / "nightly").read_text()
    globs = re.search(r"for file in (.*?); do ", script)
    assert globs is not None
    files = [path for each in globs[1].split() for path in sorted(ROOT.glob(each))]
    assert files == SHIPPED
    assert f"--clusterings {CLUSTERED.relative_to(ROOT)}" in script
