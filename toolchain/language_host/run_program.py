"""Runs one Pulumi program in the project's own interpreter; the language host starts it."""

import asyncio
import json
import logging
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

# Exit codes that the language host knows besides 0: the user has seen the error, or has interrupted.
SHOWN = 32
INTERRUPTED = 130


def main() -> int:
    """Run the program that the first argument, a JSON object, describes."""
    signal.signal(signal.SIGINT, _leave)
    request = json.loads(sys.argv[1])
    try:
        import pulumi
        import pulumi.runtime
    except ImportError as error:
        sys.stderr.write(
            f"{sys.executable} can't import pulumi ({error}): are the project's packages installed?\n"
        )
        return 1

    pulumi.runtime.set_all_config(
        pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env()
    )
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            monitor=request["monitor"],
            engine=request["engine"],
            project=request["project"],
            stack=request["stack"],
            parallel=request["parallel"],
            dry_run=request["dry_run"],
            organization=request["organization"],
            root_directory=request["root_directory"],
        )
    )
    program = request["program"]
    sys.argv = [program, *request["args"]]
    # asyncio would complain about every piece of work that an error left behind.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(lambda: _run(program)))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return SHOWN
    except Exception as error:  # noqa: BLE001 whatever a program raises is shown, once
        pulumi.log.error(_from_the_program(error, program))
        return SHOWN
    finally:
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End at once: the engine is cancelling, and a program that unwinds prints what nobody asked for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _run(program: str) -> None:
    runpy.run_path(program, run_name="__main__")


def _from_the_program(error: BaseException, program: str) -> str:
    """The traceback without the frames of those who started the program."""
    path = Path(program).resolve()
    folder = path if path.is_dir() else path.parent
    frames = traceback.extract_tb(error.__traceback__)
    without_any = len(frames) if isinstance(error, SyntaxError) else 0  # it names its line itself
    first = next((index for index, frame in enumerate(frames) if _is_below(frame, folder)), without_any)
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(frames[first:])
    return "".join(shown.format())


def _is_below(frame: traceback.FrameSummary, folder: Path) -> bool:
    file = Path(frame.filename)
    return file.is_absolute() and file.resolve().is_relative_to(folder) and "site-packages" not in file.parts


if __name__ == "__main__":
    sys.exit(main())
