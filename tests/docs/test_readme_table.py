"""The table that opens the README is what the command prints today."""

import pytest

COMMAND = ("plan", "retail-h200", "llama-a100", "edge-cloud", "autonomous-h200", "--markdown")


@pytest.mark.slow
def test_the_contrast_in_the_readme_is_what_plan_prints(run_cli, root):
    outcome = run_cli(*COMMAND)
    assert outcome.code == 0
    assert outcome.out.strip() in (root / "README.md").read_text(encoding="utf-8")
