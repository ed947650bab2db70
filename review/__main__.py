"""`python -m review [--base COMMIT] [--out FILE]`: prints the report; `make pr-check` calls it."""

import argparse
import sys
import tempfile
from pathlib import Path

from review.check import compare
from review.report import report
from review.trees import POLICIES, ReviewError, Tree, base_commit, changed_paths, unpack
from toolchain.errors import ToolchainError
from toolchain.progress import step
from toolchain.pulumi import ensure
from toolchain.versions import LOCK, REPOSITORY

_NO_BASE = (
    "The history here holds no commit to compare with, so every stack is shown as if it were new. "
    "`git fetch --unshallow` brings the rest."
)
_OTHER_PACKAGES = f"`{LOCK.name}` differs: the base was planned with the packages of this tree."
_OTHER_POLICIES = f"`{POLICIES}/` differs: the stacks are judged by the rules of this tree."
_KUBERNETES = (
    "Stacks on Kubernetes are compared by the manifests that both trees render: what replaces an object is "
    "the provider's own list, and no cluster is asked."
)
_NO_POLICIES = f"There is no `{POLICIES}/PulumiPolicy.yaml`, so no policy judged them."


def main(arguments: list[str]) -> int:
    """0 where every stack plans and passes the policies, 1 where one does not, 2 where none was compared."""
    parser = argparse.ArgumentParser(prog="make pr-check ARGS=…", description=__doc__)
    parser.add_argument("--base", help="commit to compare with (default: where this branch left main)")
    parser.add_argument("--out", type=Path, help="file that gets the report too")
    options = parser.parse_args(arguments)
    try:
        text, ok = review(REPOSITORY, options.base)
    except (ReviewError, ToolchainError) as error:
        print(f"make pr-check: {error}", file=sys.stderr)
        return 2
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    return 0 if ok else 1


def review(checkout: Path, asked: str | None = None) -> tuple[str, bool]:
    """The report on a checkout as it lies there, and whether all is well in it."""
    commit = base_commit(checkout, asked)
    head = Tree(checkout, "this tree")
    with tempfile.TemporaryDirectory(prefix="tf-serving-review-") as name:
        folder = Path(name)
        base = unpack(checkout, commit, folder / "base") if commit else None
        changed = changed_paths(checkout, commit) if commit else None
        notes = [_OTHER_PACKAGES] if changed and LOCK.name in changed else []
        if any(path.startswith(f"{POLICIES}/") for path in changed or ()):
            notes.append(_OTHER_POLICIES)
        notes += [] if (checkout / POLICIES / "PulumiPolicy.yaml").exists() else [_NO_POLICIES]
        notes += [] if base else [_NO_BASE]
        if any(head.is_on_kubernetes(file) for file in head.stacks()):
            notes.append(_KUBERNETES)
        toolchain = ensure(plugins=["docker"])
        with step("Preview every stack, and its base where it changed", "30 s to 3 min"):
            outcomes = compare(head, base, folder / "stacks", toolchain, changed)
    title = f"`{base.name}`" if base else "nothing"
    return report(outcomes, base=title, notes=notes), all(outcome.ok for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
