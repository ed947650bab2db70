"""Rewrites the golden files: look at the difference as at a change to production, then commit it."""

import shutil

from tests import golden


def main() -> None:
    """Replace every golden folder by what its stack file comes to now."""
    for stack in golden.committed_stacks():
        shutil.rmtree(golden.GOLDEN / stack)
    for stack, file in golden.stack_files().items():
        for path, text in golden.rendered(stack, file).items():
            target = golden.GOLDEN / stack / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
