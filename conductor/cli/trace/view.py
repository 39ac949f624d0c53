"""`acp-conductor trace view FILE`"""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("view")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The default is a free one.")
@click.option(
    "--browser/--no-browser", default=True, help="Whether to open a browser; the default is yes."
)
@click.option("--live", is_flag=True, hidden=True, help="Started by --view: ends with its stdin.")
@click.option("--remove", is_flag=True, hidden=True, help="At the end, its directory is removed.")
def command(file: str, port: int, browser: bool, live: bool, remove: bool) -> None:
    """Show a trace in a browser: a sequence diagram with what each component changed.

    Serves the page on 127.0.0.1 until Ctrl-C. The URL has a token, without which nothing of the
    trace is served. What is added to the file is shown at once. With the process id of a running
    conductor: its trace file, or what its flight recorder has now.

    \b
    Examples:
      acp-conductor trace view t.jsonl
      acp-conductor trace view t.jsonl --no-browser --port 8800
    """
    from conductor.cli.trace.reading import check_is_trace, dumped_file, is_running
    from conductor.viewer.app import view

    path = Path(dumped_file(int(file)) if is_running(file) else file)
    try:
        if not live:
            check_is_trace(str(path))
        view(path, port=port, opens_browser=browser, is_live=live)
    except OSError as exc:
        raise click.UsageError(
            f"{exc.filename or f'--port {port}'}: {exc.strerror or exc}"
        ) from exc
    finally:
        if remove:
            import shutil

            shutil.rmtree(path.parent, ignore_errors=True)
